import sys
print([getattr(f, "__name__", type(f).__name__) for f in sys.meta_path], len(sys.path_hooks))
print(sys.path_importer_cache.get("/scratch/main.py", "absent"), "/scratch" in sys.path_importer_cache)
print(sorted(sys.path_importer_cache))
