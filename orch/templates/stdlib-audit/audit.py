"""The work of this project, and its task list: ``python3 audit.py | orch add --from -``."""

import ast
import json
import os
import sys
import sysconfig

ROOT = sysconfig.get_path("stdlib")
# Their modules are imported one by one; some exist for another operating system only.
IMPORTED = ("asyncio", "ctypes", "multiprocessing")


def parse(task):
    """Count the lines and functions of one module and find its longest function."""
    path = task.payload["path"]
    with open(path, "rb") as file:
        tree = ast.parse(file.read(), path)
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    longest = max(functions, key=_length, default=None)
    return {
        "lines": max((getattr(node, "end_lineno", 0) or 0 for node in tree.body), default=0),
        "functions": len(functions),
        "longest": longest and {"name": longest.name, "lines": _length(longest)},
    }


def _length(function):
    return function.end_lineno - function.lineno + 1


def modules():
    """Every module of the standard library, the bulk of its own tests left out, as paths relative to it."""
    for folder, folders, files in os.walk(ROOT):
        inside = os.path.relpath(folder, ROOT)
        folders[:] = sorted(set(folders) - {"site-packages", "dist-packages", "__pycache__"})
        for name in sorted(files):
            if name.endswith(".py") and not (inside.startswith("test") and name.startswith(("test_", "__"))):
                yield os.path.normpath(os.path.join(inside, name))


def main():
    """Print the tasks, one a line; a key makes adding them again harmless."""
    for name in modules():
        odd = "data" in name
        # The odd ones first, so that the first fire meets them.
        row = {"mode": "parse", "key": f"parse {name}", "payload": {"path": os.path.join(ROOT, name)}}
        print(json.dumps({**row, "priority": 10 if odd else 0}))
        package, _, rest = name.partition(os.sep)
        if package in IMPORTED and rest and not rest.startswith(("test", "_")):
            module = name.removesuffix(".py").replace(os.sep, ".")
            row = {"mode": "import", "key": f"import {module}"}
            print(json.dumps({**row, "payload": {"python": sys.executable, "module": module}}))


if __name__ == "__main__":
    main()
