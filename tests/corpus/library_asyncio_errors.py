import asyncio
async def fail(n):
    raise ValueError(n)
async def main():
    print(await asyncio.gather(fail(1), return_exceptions=True))
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(10)
    except TimeoutError as error:
        print("timed out", repr(error))
    async with asyncio.TaskGroup() as group:
        group.create_task(fail(2))
        group.create_task(fail(3))
asyncio.run(main())
