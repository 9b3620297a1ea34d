import asyncio, signal
async def main():
    asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
    try:
        await asyncio.sleep(5)
    except asyncio.CancelledError:
        print("cancelled")
        raise
asyncio.run(main())
