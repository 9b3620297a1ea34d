import asyncio
async def work():
    pass
work()
async def main():
    asyncio.get_running_loop().call_soon(1 .__truediv__)
    print("main")
asyncio.run(main())
asyncio.get_running_loop()
