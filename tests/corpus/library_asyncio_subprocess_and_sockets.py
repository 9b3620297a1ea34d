import asyncio, sys
async def echo(reader, writer):
    writer.write((await reader.readline()).upper())
    writer.close()
async def main():
    p = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(input()[::-1])", stdin=-1, stdout=-1)
    print(await p.communicate(b"olleh\n"), p.returncode)
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"shout\n")
    print(await reader.read())
    writer.close()
    server.close()
asyncio.run(main())
