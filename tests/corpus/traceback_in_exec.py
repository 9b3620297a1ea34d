source = "def f():\n    raise ValueError('inside exec')\nf()\n"
exec(compile(source, "<generated>", "exec"))
