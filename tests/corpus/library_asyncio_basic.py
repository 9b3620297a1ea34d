import asyncio
async def work(n):
    await asyncio.sleep(0.001 * n)
    print("work", n)
    return n * n
async def main():
    print(await asyncio.gather(*(work(n) for n in range(4))))
    async with asyncio.TaskGroup() as group:
        t = group.create_task(work(5))
    print(t.result(), type(asyncio.get_running_loop()).__name__)
asyncio.run(main())
