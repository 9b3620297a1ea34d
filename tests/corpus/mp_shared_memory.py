from multiprocessing import Process, shared_memory
def fill(name):
    other = shared_memory.SharedMemory(name)
    other.buf[:5] = b"hello"
    other.close()
if __name__ == "__main__":
    block = shared_memory.SharedMemory(create=True, size=4096)
    p = Process(target=fill, args=(block.name,))
    p.start()
    p.join()
    print(bytes(block.buf[:5]), block.size)
    block.close()
    block.unlink()
