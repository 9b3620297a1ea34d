import os, threading
threading.Thread(target=lambda: os._exit(6)).start()
threading.Event().wait()
