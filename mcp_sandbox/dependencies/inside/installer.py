"""Installs packages in a sandbox of its own, or finds out which versions would be; what it leaves is taken out.

It is that sandbox's program: Python 3.8, the standard library, and beside it pip as `pip.zip`, the packages as
`requirements.txt`, and what to do on stdin. pip finds its settings (index, proxy, certificates) in the environment.
No code of a package runs, unless packages may be built from source.

    install    entries     what is installed, as records that end in NUL: `MODE PATH` for each file, and first the
                           Python that all of it is for
               files/N     their contents, counted from 0, in six digits
    resolve    lock        the packages as pip's requirements with hashes
"""

import compileall
import glob
import json
import os
import py_compile
import shutil
import site
import subprocess
import sys
import sysconfig
import venv

PIP = "pip.zip/pip"
ENVIRONMENT = "environment"  # nothing that runs from here: /scratch cannot be executed, and need not be
FINAL = "/opt/mcp-sandbox"  # where it will stand
BUSY = "temporary"


def main():
    os.mkdir(BUSY)
    os.environ["TMPDIR"] = os.path.abspath(BUSY)
    task = dict(line.split(" ", 1) for line in sys.stdin.read().splitlines())
    make_environment(shared=task["shared"] == "1")
    if task["do"] == "resolve":
        resolve(task["python"])
    else:
        install(whole=task["whole"] == "1")


def make_environment(shared):
    """Make a virtual environment; where it is `shared`, the image's own packages are seen after those in it."""
    venv.EnvBuilder(system_site_packages=shared, symlinks=True, with_pip=False).create(ENVIRONMENT)
    for script in glob.glob(ENVIRONMENT + "/bin/[Aa]ctivate*"):
        os.unlink(script)  # they name this place, and nobody has a use for them
    if (
        shared and sys.prefix != sys.base_prefix
    ):  # the image's Python is in one itself, which the new one passes over
        with open(os.path.join(packages_folder(), "image.pth"), "w") as path:
            path.write("import site; site.addsitedir(%r)\n" % sysconfig.get_path("purelib"))

    if not shared:
        bring_figures()


def bring_figures():
    """Let figures come back from programs that see none of the image's packages: the image may have a hook for that."""
    for folder in site.getsitepackages():
        for name in ("sandbox_figures.py", "sandbox_figures.pth"):
            if os.path.isfile(os.path.join(folder, name)):
                shutil.copy(os.path.join(folder, name), packages_folder())


def packages_folder():
    return os.path.join(ENVIRONMENT, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")


def pip(*arguments):
    command = [os.path.join(ENVIRONMENT, "bin", "python3"), "-u", PIP, *arguments]
    status = subprocess.call(command, stdin=subprocess.DEVNULL)
    if status:
        sys.exit(status if status > 0 else 1)


def install(whole):
    if whole:
        pip("install", "--no-compile", "--require-hashes", "--no-deps", "-r", "requirements.txt")
    else:
        pip("install", "--no-compile", "--require-hashes", "-r", "requirements.txt")
    print("Compiling", flush=True)
    # Never stale: nothing there can be changed. A file that does not compile is a template.
    compileall.compile_dir(
        packages_folder(), quiet=2, workers=0, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    print("Packing", flush=True)
    pack()


def pack():
    """Leave flat what is installed, for only regular files come out, without modes and without bytecode."""
    os.mkdir("files")
    python = os.path.realpath(os.path.join(ENVIRONMENT, "bin", "python3"))
    count = 0
    with open("entries", "wb") as entries:
        entries.write(os.fsencode(python) + b"\0")
        for folder, _, names in os.walk(ENVIRONMENT):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.islink(path) or not os.path.isfile(path):
                    continue
                inside = os.path.relpath(path, ENVIRONMENT)
                mode = b"755" if os.stat(path).st_mode & 0o100 else b"644"
                if inside.startswith("bin/"):
                    repoint(path)
                entries.write(mode + b" " + os.fsencode(inside) + b"\0")
                os.rename(path, "files/%06d" % count)  # six digits: they come out in the order of names
                count += 1
    shutil.rmtree(ENVIRONMENT)
    shutil.rmtree(BUSY)


def repoint(path):
    """Let a script name the Python where it will stand."""
    here = b"#!" + os.fsencode(os.path.abspath(ENVIRONMENT))
    with open(path, "rb") as script:
        content = script.read()
    if content.startswith(here):
        with open(path, "wb") as script:
            script.write(b"#!" + FINAL.encode() + content[len(here) :])


def resolve(python):
    wanted = sys.version.split()[0]
    if python != "any" and not fits(python):
        sys.exit("ERROR: the program requires Python %s, and the image has %s" % (python, wanted))
    pip("install", "--dry-run", "--quiet", "--report", "report.json", "-r", "requirements.txt")
    with open("report.json", encoding="utf-8") as report:
        installs = json.load(report)["install"]
    os.unlink("report.json")
    with open("lock", "w", encoding="utf-8") as lock:
        for each in installs:
            digest = each["download_info"]["archive_info"]["hashes"]["sha256"]
            lock.write(
                "%s==%s --hash=sha256:%s\n" % (each["metadata"]["name"], each["metadata"]["version"], digest)
            )


def fits(python):
    sys.path.insert(0, "pip.zip")
    from pip._vendor.packaging.specifiers import SpecifierSet

    return SpecifierSet(python).contains("%d.%d.%d" % sys.version_info[:3])


main()
