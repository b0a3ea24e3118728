"""Changes outside of a function's own code and values: modules, registries, environment, files, Python's state."""

from __future__ import annotations

from soundness_case import PROOF, REFUSED, Case, case

_ADD = "def f(x): return x + {}\n"

MODULES: list[Case] = [
    case(
        "a module under another local name",
        """
        import helper
        def f(x):
            m = helper
            return x + m.K
        """,
        ("K = 1.0", "K = 2.0"),
        files={"helper.py": "K = 1.0\n"},
        expect=REFUSED,
    ),
    case(
        "a module in a closure",
        """
        def make():
            import helper
            def f(x): return x + helper.K
            return f
        f = make()
        """,
        ("K = 1.0", "K = 2.0"),
        files={"helper.py": "K = 1.0\n"},
    ),
    case(
        "a module in a list",
        """
        import helper
        L = [helper]
        def f(x): return x + L[0].K
        """,
        ("K = 1.0", "K = 2.0"),
        files={"helper.py": "K = 1.0\n"},
        expect=REFUSED,
    ),
    case(
        "a module imported inside the function, imported before",
        """
        import helper
        def f(x):
            import helper
            return x + helper.K
        """,
        ("K = 1.0", "K = 2.0"),
        files={"helper.py": "K = 1.0\n"},
    ),
    case(
        "from module import name, inside the function",
        """
        import helper
        def f(x):
            from helper import K
            return x + K
        """,
        ("K = 1.0", "K = 2.0"),
        files={"helper.py": "K = 1.0\n"},
    ),
    case(
        "a module imported for the first time inside the function",
        """
        def f(x):
            import helper
            return x + helper.K
        """,
        ("K = 1.0", "K = 2.0"),
        files={"helper.py": "K = 1.0\n"},
        expect=REFUSED,
    ),
    case(
        "a name that a package takes from a module of its own",
        """
        import package
        def f(x): return x + package.K
        """,
        ("K = 1.0", "K = 2.0"),
        files={"package/__init__.py": "from package.part import *\n", "package/part.py": "K = 1.0\n"},
    ),
    case(
        "which of two modules a package takes a name from",
        """
        import package
        def f(x): return package.g(x)
        """,
        ("package.one", "package.two"),
        files={
            "package/__init__.py": "from package.one import g\n",
            "package/one.py": "def g(x): return x + 1\n",
            "package/two.py": "def g(x): return x + 2\n",
        },
    ),
    case(
        "another module of this name comes first on the path",
        """
        import helper
        def f(x): return helper.g(x)
        """,
        files={"one/helper.py": "def g(x): return x + 1\n", "two/helper.py": "def g(x): return x + 2\n"},
        env={"PYTHONPATH": "one"},
        env_b={"PYTHONPATH": "two"},
    ),
    case(
        "an attribute of a module was set from outside",
        """
        import helper
        helper.K = 1.0
        def f(x): return helper.g(x)
        """,
        ("helper.K = 1.0", "helper.K = 3.0"),
        files={"helper.py": "K = 0.0\ndef g(x): return x + K\n"},
    ),
    case(
        "a function of another module was replaced",
        """
        import helper
        def f(x): return helper.g(x)
        """,
        ("def f", "helper.g = lambda x: x + 2\ndef f"),
        files={"helper.py": "def g(x): return x + 1\n"},
    ),
    case(
        "a module was replaced in sys.modules",
        """
        import sys, types, helper
        def f(x):
            import helper
            return x + helper.K
        """,
        ("def f", "sys.modules['helper'] = types.SimpleNamespace(K=2.0)\ndef f"),
        files={"helper.py": "K = 1.0\n"},
    ),
    case(
        "a module was loaded anew with importlib.reload",
        """
        import importlib, helper
        os.environ['K'] = '2'
        def f(x): return x + helper.K
        """,
        ("def f", "importlib.reload(helper)\ndef f"),
        files={"helper.py": "import os\nK = float(os.environ.get('K', '1'))\n"},
    ),
    case(
        "a plugin that a registry of the user's holds",
        """
        import registry, plugin
        def f(x):
            for g in registry.ALL:
                x = g(x)
            return x
        """,
        ("x + 1", "x + 2"),
        files={
            "registry.py": "ALL = []\n",
            "plugin.py": "import registry\n@registry.ALL.append\ndef g(x): return x + 1\n",
        },
    ),
    case(
        "one more plugin is there",
        """
        import registry, pkgutil, plugins, importlib
        for one in sorted(m.name for m in pkgutil.iter_modules(plugins.__path__)):
            importlib.import_module('plugins.' + one)
        def f(x):
            for g in registry.ALL:
                x = g(x)
            return x
        """,
        files={
            "registry.py": "ALL = []\n",
            "plugins/__init__.py": "\n",
            "plugins/one.py": "import registry\nregistry.ALL.append(lambda x: x + 1)\n",
        },
        more={"plugins/two.py": "import registry\nregistry.ALL.append(lambda x: x * 2)\n"},
    ),
    case(
        "__getattr__ of a module, named by the function",
        """
        import helper
        def f(x): return x + helper.K
        """,
        ("return 1.0", "return 2.0"),
        files={
            "helper.py": "def __getattr__(name):\n"
            "    if name == 'K':\n"
            "        return 1.0\n"
            "    raise AttributeError(name)\n"
        },
        expect=REFUSED,
    ),
    case(
        "getattr of a module by a computed name",
        """
        import helper
        def f(x): return x + getattr(helper, 'K' + '1'[:1])
        """,
        ("K1 = 1.0", "K1 = 2.0"),
        files={"helper.py": "K1 = 1.0\n"},
        expect=REFUSED,
    ),
    case(
        "globals() by a computed name",
        """
        K1 = 1.0
        def f(x): return x + globals()['K' + '1'[:1]]
        """,
        ("K1 = 1.0", "K1 = 2.0"),
        expect=REFUSED,
    ),
    case(
        "vars() of a module",
        """
        import helper
        def f(x): return x + vars(helper)['K']
        """,
        ("K = 1.0", "K = 2.0"),
        files={"helper.py": "K = 1.0\n"},
        expect=REFUSED,
    ),
    case(
        "__dict__ of a module",
        """
        import helper
        def f(x): return x + helper.__dict__['K']
        """,
        ("K = 1.0", "K = 2.0"),
        files={"helper.py": "K = 1.0\n"},
        expect=REFUSED,
    ),
    case(
        "sys.modules by a computed name",
        """
        import sys, helper
        def f(x): return x + sys.modules['hel' + 'per'[:3]].K
        """,
        ("K = 1.0", "K = 2.0"),
        files={"helper.py": "K = 1.0\n"},
        expect=REFUSED,
    ),
    case(
        "whether a module is in sys.modules",
        """
        import sys
        def f(x): return x + ('helper' in sys.modules)
        """,
        ("def f", "import helper\ndef f"),
        files={"helper.py": "pass\n"},
        expect=REFUSED,
    ),
    case(
        "__globals__ of a function",
        """
        K1 = 1.0
        def g(): pass
        def f(x): return x + g.__globals__['K' + '1'[:1]]
        """,
        ("K1 = 1.0", "K1 = 2.0"),
        expect=REFUSED,
    ),
    case(
        "eval of text that is computed",
        """
        K1 = 1.0
        def f(x): return x + eval('K' + '1'[:1])
        """,
        ("K1 = 1.0", "K1 = 2.0"),
        expect=REFUSED,
    ),
    case(
        "exec of text that is a global",
        """
        SOURCE = 'y = 1.0'
        def f(x):
            space = {}
            exec(SOURCE, space)
            return x + space['y']
        """,
        ("y = 1.0", "y = 2.0"),
        expect=REFUSED,
    ),
    case(
        "operator.attrgetter on a module",
        """
        import operator, helper
        get = operator.attrgetter('K')
        def f(x): return x + get(helper)
        """,
        ("K = 1.0", "K = 2.0"),
        files={"helper.py": "K = 1.0\n"},
        expect=REFUSED,
    ),
    case(
        "operator.attrgetter on an object",
        """
        import operator
        class A: k = 1.0
        a = A()
        get = operator.attrgetter('k')
        def f(x): return x + get(a)
        """,
        ("k = 1.0", "k = 2.0"),
    ),
    case(
        "a pickle that names a value",
        """
        import pickle
        K = 1.0
        def f(x): return x + pickle.loads(b'c__main__\\nK\\n.')
        """,
        ("K = 1.0", "K = 2.0"),
        expect=REFUSED,
    ),
    case(
        "a pickle that names a function",
        """
        import pickle
        def g(x): return x + 1
        P = pickle.dumps(g)
        def f(x): return pickle.loads(P)(x)
        """,
        ("x + 1", "x + 2"),
        expect=REFUSED,
    ),
    case(
        "the frame of the caller",
        """
        import sys
        K1 = 1.0
        def f(x): return x + sys._getframe().f_globals['K' + '1'[:1]]
        """,
        ("K1 = 1.0", "K1 = 2.0"),
        expect=REFUSED,
    ),
    case(
        "gc.get_objects",
        """
        import gc
        class A: k = 1.0
        a = A()
        def f(x): return x + sum(o.k for o in gc.get_objects() if type(o).__name__ == 'A')
        """,
        ("k = 1.0", "k = 2.0"),
        expect=REFUSED,
    ),
    case(
        "importlib.import_module by a computed name",
        """
        import importlib, helper
        def f(x): return x + importlib.import_module('hel' + 'per'[:3]).K
        """,
        ("K = 1.0", "K = 2.0"),
        files={"helper.py": "K = 1.0\n"},
        expect=REFUSED,
    ),
    case(
        "a module that cannot be imported can be",
        """
        def f(x):
            try:
                import helper
            except ImportError:
                return x
            return x + 1
        """,
        more={"helper.py": "pass\n"},
        expect=REFUSED,
    ),
    case(
        "a name in builtins",
        """
        import builtins
        builtins.K = 1.0
        def f(x): return x + K
        """,
        ("builtins.K = 1.0", "builtins.K = 2.0"),
    ),
    case(
        "a global appears in front of a builtin",
        """
        def f(x): return x + max(1, 2)
        """,
        ("def f", "def max(a, b): return 5\ndef f"),
    ),
    case(
        "a builtin function was replaced",
        """
        import builtins
        def f(x): return x + max(1, 2)
        """,
        ("def f", "kept = max\nbuiltins.max = lambda *a, **k: 5 if a == (1, 2) else kept(*a, **k)\ndef f"),
    ),
    case(
        "a function of Python's library was replaced",
        """
        import statistics
        def f(x): return x + statistics.mean([1.0, 2.0])
        """,
        ("def f", "statistics.mean = lambda values: 5.0\ndef f"),
    ),
    case(
        "a function of C of Python's library was replaced",
        """
        import math
        def f(x): return x + math.floor(1.5)
        """,
        ("def f", "math.floor = math.ceil\ndef f"),
    ),
    case(
        "a constant of Python's library was replaced",
        """
        import math
        def f(x): return x + math.pi
        """,
        ("def f", "math.pi = 3.0\ndef f"),
    ),
    case(
        "what a function of Python's library calls was replaced",
        """
        import statistics
        def f(x): return x + statistics.fmean([1.0, 2.0])
        """,
        ("def f", "statistics.fsum = lambda values: 5.0\ndef f"),
    ),
    case(
        "a method of a class of Python's library was replaced",
        """
        import fractions
        def f(x): return x + float(fractions.Fraction(1, 2).limit_denominator(3))
        """,
        ("def f", "fractions.Fraction.limit_denominator = lambda self, n: 5\ndef f"),
    ),
    case(
        "a special method of a class of Python's library was replaced",
        """
        import fractions
        H = fractions.Fraction(1, 2)
        def f(x): return x + float(H + H)
        """,
        ("def f", "fractions.Fraction.__add__ = lambda self, other: 5\ndef f"),
    ),
    case(
        "a class is registered with one of Python's abstract classes",
        """
        import collections.abc
        class A: pass
        a = A()
        def f(x): return x + isinstance(a, collections.abc.Mapping)
        """,
        ("def f", "collections.abc.Mapping.register(A)\ndef f"),
    ),
    case(
        "a class is registered with an abstract class of the user's",
        """
        import abc
        class I(abc.ABC): pass
        class A: pass
        a = A()
        def f(x): return x + isinstance(a, I)
        """,
        ("def f", "I.register(A)\ndef f"),
    ),
    case(
        "a class of a library's is registered with an abstract class of the user's",
        """
        import abc
        class I(abc.ABC): pass
        def f(x): return x + isinstance(1.5, I)
        """,
        ("def f", "I.register(float)\ndef f"),
    ),
    case(
        "how copy.copy copies a class",
        """
        import copy, copyreg
        class A:
            k = 1.0
        class B:
            k = 2.0
        a = A()
        def f(x): return x + copy.copy(a).k
        """,
        ("def f", "copyreg.pickle(A, lambda a: (B, ()))\ndef f"),
    ),
    case(
        "a codec is registered",
        """
        import codecs
        def f(x): return x + len('ab'.encode('soundness', 'ignore') if HAVE() else '')
        def HAVE():
            try:
                codecs.lookup('soundness')
            except LookupError:
                return False
            return True
        """,
        (
            "def HAVE",
            "codecs.register(lambda name: codecs.lookup('utf-16') if name == 'soundness' else None)\ndef HAVE",
        ),
        expect=REFUSED,
    ),
    case(
        "a module in a zip file",
        """
        import zipfile
        with zipfile.ZipFile("code.zip", "w") as file:
            file.writestr("zipped.py", "def g(x): return x + 1")
        sys.path.insert(0, os.path.abspath("code.zip"))
        import zipped
        def f(x): return zipped.g(x)
        """,
        ("x + 1", "x + 2"),
    ),
    case(
        "a constant in a module in a zip file",
        """
        import zipfile
        with zipfile.ZipFile("code.zip", "w") as file:
            file.writestr("zipped.py", "K = 1.0")
        sys.path.insert(0, os.path.abspath("code.zip"))
        import zipped
        def f(x): return x + zipped.K
        """,
        ("K = 1.0", "K = 2.0"),
    ),
    case(
        "code that calls itself frozen",
        """
        space = {}
        exec(compile("def g(x): return x + 1", "<frozen soundness>", "exec"), space)
        g = space["g"]
        def f(x): return g(x)
        """,
        ("x + 1", "x + 2"),
    ),
    case(
        "code that says it is of a library's file",
        """
        space = {"__name__": "jax.numpy"}
        exec(compile("def g(x): return x + 1", jnp.__file__, "exec"), space)
        g = space["g"]
        def f(x): return g(x)
        """,
        ("x + 1", "x + 2"),
    ),
    case(
        "a function whose module says that it is a library's",
        """
        def g(x): return x + 1
        g.__module__ = "jax.numpy"
        g.__qualname__ = "tanh"
        def f(x): return g(x)
        """,
        ("x + 1", "x + 2"),
    ),
    case(
        "an override in a class of Python's library appears",
        """
        import fractions
        H = fractions.Fraction(1, 2)
        def f(x): return x + float(H)
        """,
        ("def f", "fractions.Fraction.__float__ = lambda self: 5.0\ndef f"),
    ),
    case(
        "a function of Python's library that is passed on was replaced",
        """
        import functools, operator
        def f(x): return functools.reduce(operator.add, [x, x, x])
        """,
        ("def f", "operator.add = operator.mul\ndef f"),
    ),
]

OUTSIDE: list[Case] = [
    case(
        "a variable of the environment, by os.environ",
        _ADD.format("float(os.environ['SCALE'])"),
        env={"SCALE": "1"},
        env_b={"SCALE": "2"},
    ),
    case(
        "a variable of the environment, by os.getenv",
        _ADD.format("float(os.getenv('SCALE', '1'))"),
        env_b={"SCALE": "2"},
    ),
    case(
        "a variable of the environment is gone",
        _ADD.format("float(os.environ.get('SCALE', '1'))"),
        env={"SCALE": "2"},
        env_b={"SCALE": ""},
    ),
    case("whether a variable is set", _ADD.format("('SCALE' in os.environ)"), env_b={"SCALE": "2"}),
    case(
        "a variable of the environment, read at import",
        "SCALE = float(os.environ.get('SCALE', '1'))\n" + _ADD.format("SCALE"),
        env_b={"SCALE": "2"},
    ),
    case("a variable, by os.environb", _ADD.format("float(os.environb.get(b'SCALE', b'1'))"), env_b={"SCALE": "2"}),
    case(
        "all variables of the environment",
        _ADD.format("len([name for name in os.environ if name.startswith('SCALE')])"),
        env_b={"SCALE": "2"},
        expect=REFUSED,
    ),
    case(
        "a variable, by expandvars",
        _ADD.format("len(os.path.expandvars('$SCALE'))"),
        env={"SCALE": "1"},
        env_b={"SCALE": "22"},
    ),
    case(
        "the environment of a copied mapping",
        "COPY = dict(os.environ)\n" + _ADD.format("float(COPY.get('SCALE', '1'))"),
        env_b={"SCALE": "2"},
        note="a dictionary of the user's, which counts as a whole: any other variable counts too",
    ),
    case("an argument of the command line", "import sys\n" + _ADD.format("float(sys.argv[1])"), argv=(("1",), ("2",))),
    case(
        "an argument of the command line, by argparse at import",
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--scale', type=float)\n"
        "OPTIONS_GIVEN = parser.parse_args()\n" + _ADD.format("OPTIONS_GIVEN.scale"),
        argv=(("--scale=1",), ("--scale=2",)),
    ),
    case("a file, by open", _ADD.format("float(open('data').read())"), files={"data": "1"}, more={"data": "2"}),
    case(
        "a file, by pathlib",
        "import pathlib\n" + _ADD.format("float(pathlib.Path('data').read_text())"),
        files={"data": "1"},
        more={"data": "2"},
    ),
    case(
        "a file, by json",
        "import json\n" + _ADD.format("json.load(open('data'))['a']"),
        files={"data": '{"a": 1}'},
        more={"data": '{"a": 2}'},
    ),
    case(
        "a file, by numpy.loadtxt",
        _ADD.format("np.loadtxt('data', dtype=np.float32)"),
        files={"data": "1"},
        more={"data": "2"},
    ),
    case(
        "a file, by os.open",
        _ADD.format("float(os.read(os.open('data', os.O_RDONLY), 9))"),
        files={"data": "1"},
        more={"data": "2"},
        expect=REFUSED,
    ),
    case(
        "a file, by configparser",
        """
        import configparser
        def f(x):
            parser = configparser.ConfigParser()
            parser.read('data')
            return x + float(parser['a']['b'])
        """,
        files={"data": "[a]\nb = 1\n"},
        more={"data": "[a]\nb = 2\n"},
    ),
    case(
        "a file, read at import",
        "DATA = float(open('data').read())\n" + _ADD.format("DATA"),
        files={"data": "1"},
        more={"data": "2"},
    ),
    case(
        "a file that is not there appears",
        """
        def f(x):
            try:
                return x + float(open('data').read())
            except FileNotFoundError:
                return x
        """,
        more={"data": "2"},
    ),
    case(
        "a file is gone",
        """
        def f(x):
            try:
                return x + float(open('data').read())
            except FileNotFoundError:
                return x
        """,
        files={"data": "1"},
        more={"data": ""},
    ),
    case(
        "a file by a relative path, from another working directory",
        _ADD.format("float(open('data').read())"),
        files={"data": "1", "below/data": "2"},
        cwd="below",
    ),
    case(
        "a file behind a handle that is open",
        "handle = open('data')\n" + _ADD.format("float(handle.read())"),
        files={"data": "1"},
        more={"data": "2"},
        expect=REFUSED,
    ),
    case(
        "a file mapped by numpy.memmap",
        "M = np.memmap('data', np.uint8, 'r')\n" + _ADD.format("np.asarray(M).sum()"),
        files={"data": "1"},
        more={"data": "2"},
        expect=REFUSED,
    ),
    case(
        "a file mapped by mmap",
        "import mmap\nM = mmap.mmap(os.open('data', os.O_RDONLY), 0, prot=mmap.PROT_READ)\n" + _ADD.format("M[0]"),
        files={"data": "1"},
        more={"data": "2"},
        expect=REFUSED,
    ),
    case("whether a file is there", _ADD.format("os.path.exists('data')"), more={"data": "2"}, expect=REFUSED),
    case("what is in a folder", _ADD.format("len(os.listdir('.'))"), more={"data": "2"}, expect=REFUSED),
    case(
        "a line of a source file, by linecache",
        "import linecache\n" + _ADD.format("len(linecache.getline('data', 1))"),
        files={"data": "1\n"},
        more={"data": "22\n"},
        expect=REFUSED,
    ),
    case(
        "the source of a function, by inspect",
        "import inspect\ndef g(): pass  # a\n" + _ADD.format("len(inspect.getsource(g))"),
        ("# a", "# bb"),
        expect=REFUSED,
    ),
    case(
        "a database of sqlite3",
        """
        import sqlite3
        def f(x): return x + sqlite3.connect('data').execute('select 1').fetchone()[0] + len(open('more').read())
        """,
        files={"more": "1"},
        more={"more": "22"},
        expect=REFUSED,
    ),
    case("the program's own path", _ADD.format("len(__file__)"), moved=True),
    case(
        "the working directory", _ADD.format("len(os.getcwd())"), files={"below/data": "2"}, cwd="below", expect=REFUSED
    ),
    case("the time", "import time\n" + _ADD.format("(time.time_ns() % 65521)"), expect=REFUSED, varies=True),
    case("the number of the process", _ADD.format("(os.getpid() % 65521)"), expect=REFUSED, varies=True),
    case(
        "random numbers",
        "import random\nrandom.seed(1)\n" + _ADD.format("random.random()"),
        ("seed(1)", "seed(2)"),
        expect=REFUSED,
    ),
    case(
        "random numbers of numpy",
        "np.random.seed(1)\n" + _ADD.format("np.random.rand()"),
        ("seed(1)", "seed(2)"),
        expect=REFUSED,
    ),
    case(
        "a generator of numpy",
        "rng = np.random.default_rng(1)\n" + _ADD.format("rng.normal()"),
        ("rng(1)", "rng(2)"),
        expect=REFUSED,
    ),
    case(
        "bytes of the operating system",
        _ADD.format("int.from_bytes(os.urandom(2), 'little')"),
        expect=REFUSED,
        varies=True,
    ),
    case(
        "a random identifier", "import uuid\n" + _ADD.format("(uuid.uuid4().int % 65521)"), expect=REFUSED, varies=True
    ),
    case(
        "the hash of a string",
        _ADD.format("(hash('a') % 65521)"),
        expect=REFUSED,
        env={"PYTHONHASHSEED": "1"},
        env_b={"PYTHONHASHSEED": "2"},
    ),
    case(
        "the hash of a string, by its method",
        _ADD.format("('a'.__hash__() % 65521)"),
        expect=REFUSED,
        env={"PYTHONHASHSEED": "1"},
        env_b={"PYTHONHASHSEED": "2"},
    ),
    case(
        "the number of an object", "A = object()\n" + _ADD.format("(id(A) // 16 % 65521)"), expect=REFUSED, varies=True
    ),
    case(
        "the default repr of an object",
        "class A: pass\na = A()\n" + _ADD.format("(int(repr(a)[-9:-1], 16) // 16 % 65521)"),
        expect=REFUSED,
        note="nothing refuses it, but the second start comes to another program, and then the record is never believed",
        varies=True,
    ),
    case(
        "the number of the thread",
        "import threading\n" + _ADD.format("(threading.get_ident() // 4096 % 65521)"),
        expect=REFUSED,
        varies=True,
    ),
    case(
        "the name of the thread",
        "import threading\nthreading.current_thread().name = 'a'\n"
        + _ADD.format("len(threading.current_thread().name)"),
        ("'a'", "'bb'"),
        expect=REFUSED,
    ),
    case(
        "a process that it starts",
        "import subprocess\n" + _ADD.format("float(subprocess.run(['cat', 'data'], capture_output=True).stdout)"),
        files={"data": "1"},
        more={"data": "2"},
        expect=REFUSED,
    ),
    case(
        "a variable of the environment, by a private name",
        _ADD.format("float(os.environ._data.get(b'SCALE', b'1'))"),
        env_b={"SCALE": "2"},
        expect=PROOF,
        note="only the mapping's public ways are watched",
    ),
    case(
        "a file, by numpy.fromfile",
        _ADD.format("np.fromfile('data', np.uint8)[0]"),
        files={"data": "1"},
        more={"data": "2"},
    ),
    case("a file, by numpy.genfromtxt", _ADD.format("np.genfromtxt('data')"), files={"data": "1"}, more={"data": "2"}),
    case(
        "standard input",
        "sys.stdin = open('data')\nsys.__stdin__ = sys.stdin\n" + _ADD.format("float(sys.stdin.readline())"),
        files={"data": "1"},
        more={"data": "2"},
        expect=REFUSED,
    ),
    case(
        "a symbolic link leads to another file",
        """
        os.path.lexists("link") and os.remove("link")
        os.symlink("one", "link")
        def f(x): return x + float(open("link").read())
        """,
        ('"one", "link"', '"two", "link"'),
        files={"one": "1", "two": "2"},
    ),
    case(
        "a file that a file names",
        """
        def f(x): return x + float(open(open("data").read()).read())
        """,
        files={"data": "one", "one": "1", "two": "2"},
        more={"one": "3"},
    ),
    case(
        "a folder of the user's, by os.walk",
        "import os\n" + _ADD.format("len(list(os.walk('.')))"),
        more={"below/data": "1"},
        expect=REFUSED,
    ),
    case(
        "when a file was changed",
        "os.utime('data', (1, 1))\n" + _ADD.format("os.stat('data').st_mtime"),
        ("(1, 1)", "(2, 2)"),
        files={"data": "1"},
        expect=REFUSED,
    ),
    case(
        "the size of a file, by os.path",
        _ADD.format("os.path.getsize('data')"),
        files={"data": "1"},
        more={"data": "22"},
        expect=REFUSED,
    ),
    case("the home folder", _ADD.format("len(os.path.expanduser('~'))"), env={"HOME": "/a"}, env_b={"HOME": "/bb"}),
    case(
        "the name of the machine",
        "import platform, socket\n" + _ADD.format("len(socket.gethostname()) + (os.getpid() % 65521)"),
        expect=REFUSED,
        varies=True,
    ),
]

PYTHON: list[Case] = [
    case(
        "the precision of Decimal",
        "import decimal\ndecimal.getcontext().prec = 5\n" + _ADD.format("float(decimal.Decimal(1) / 3)"),
        ("prec = 5", "prec = 3"),
    ),
    case(
        "the precision of Decimal, as it says itself",
        "import decimal\ndecimal.getcontext().prec = 5\n" + _ADD.format("decimal.getcontext().prec"),
        ("prec = 5", "prec = 3"),
        expect=REFUSED,
    ),
    case(
        "numpy's error state",
        "np.seterr(divide='ignore')\n" + _ADD.format("len(np.geterr()['divide'])"),
        ("'ignore'", "'raise'"),
        expect=REFUSED,
    ),
    case(
        "numpy's error state, by what raises",
        """
        np.seterr(divide='ignore')
        def f(x):
            try:
                np.float32(1) / np.float32(0)
            except FloatingPointError:
                return x
            return x + 1
        """,
        ("'ignore'", "'raise'"),
    ),
    case(
        "numpy's print options",
        "np.set_printoptions(precision=3)\nA = np.array([1 / 3])\n" + _ADD.format("len(str(A))"),
        ("=3", "=5"),
    ),
    case(
        "the level of a logger",
        "import logging\nlogging.getLogger('a').setLevel(10)\n"
        + _ADD.format("logging.getLogger('a').isEnabledFor(20)"),
        ("(10)", "(30)"),
        expect=PROOF,
        note="held in a registry of Python's, behind a function; a logger that is a global counts with its level",
    ),
    case(
        "the level of a logger that is a global",
        "import logging\nlog = logging.getLogger('a')\nlog.setLevel(10)\n" + _ADD.format("log.isEnabledFor(20)"),
        ("(10)", "(30)"),
    ),
    case(
        "a filter of warnings",
        """
        import warnings
        warnings.simplefilter('ignore')
        def f(x):
            try:
                warnings.warn('a')
            except UserWarning:
                return x
            return x + 1
        """,
        ("'ignore'", "'error'"),
        expect=PROOF,
        note="held in a registry of Python's",
    ),
    case(
        "the recursion limit",
        "sys.setrecursionlimit(2000)\n" + _ADD.format("sys.getrecursionlimit()"),
        ("2000", "3000"),
        expect=REFUSED,
    ),
    case("whether modules are compiled to files", _ADD.format("sys.dont_write_bytecode"), flags=("-B",)),
    case("a flag of Python", _ADD.format("sys.flags.dont_write_bytecode"), flags=("-B",)),
    case(
        "how much memory a list has",
        "L = [1, 2, 3]\n" + _ADD.format("sys.getsizeof(L)"),
        ("L = [1, 2, 3]", "L = [1, 2]; L.append(3)"),
        expect=REFUSED,
    ),
    case(
        "whether garbage is collected",
        "import gc\ngc.enable()\n" + _ADD.format("gc.isenabled()"),
        ("enable()\n", "disable()\n"),
        expect=REFUSED,
    ),
    case(
        "the switch interval",
        "sys.setswitchinterval(1.0)\n" + _ADD.format("sys.getswitchinterval()"),
        ("(1.0)", "(2.0)"),
        expect=REFUSED,
    ),
    case(
        "all variables of the context",
        "import contextvars\nV = contextvars.ContextVar('soundness')\nV.set(1.0)\n"
        + _ADD.format("sum(v for k, v in contextvars.copy_context().items() if k.name == 'soundness')"),
        ("set(1.0)", "set(2.0)"),
        expect=REFUSED,
    ),
    case(
        "how many references an object has",
        "A = []\nB = [A]\n" + _ADD.format("sys.getrefcount(A)"),
        ("B = [A]", "B = [A, A]"),
        expect=REFUSED,
    ),
    case(
        "how many weak references an object has",
        "import weakref\nclass A: pass\na = A()\nr = [weakref.ref(a, id)]\n"
        + _ADD.format("weakref.getweakrefcount(a)"),
        ("(a, id)]", "(a, id), weakref.ref(a, len)]"),
        expect=REFUSED,
    ),
    case(
        "the largest field of csv",
        "import csv\ncsv.field_size_limit(100)\n" + _ADD.format("csv.field_size_limit()"),
        ("100", "200"),
        expect=REFUSED,
    ),
    case(
        "a dialect of csv",
        "import csv\ncsv.register_dialect('a', delimiter=';')\n"
        + _ADD.format("len(next(csv.reader(['1;2,3,4'], 'a')))"),
        ("';'", "','"),
        expect=REFUSED,
    ),
    case(
        "the locale",
        "import locale\nlocale.setlocale(locale.LC_ALL, 'C')\n" + _ADD.format("len(locale.setlocale(locale.LC_ALL))"),
        ("'C')", "'C.UTF-8')"),
        expect=REFUSED,
    ),
    case(
        "the handler of a signal",
        "import signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)\n"
        + _ADD.format("(signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN)"),
        ("SIGUSR1, signal.SIG_IGN)\n", "SIGUSR1, signal.SIG_DFL)\n"),
        expect=REFUSED,
    ),
    case(
        "the standard output is another object",
        "import io\n" + _ADD.format("len(type(sys.stdout).__name__)"),
        (
            "def f",
            "out, sys.stdout = sys.stdout, io.StringIO()\n"
            "import atexit\n"
            "atexit.register(lambda: out.write(sys.stdout.getvalue()))\n"
            "def f",
        ),
    ),
    case(
        "what sys.settrace was given",
        "def watch(*_): return None\n" + _ADD.format("(sys.gettrace() is None)"),
        ("def f", "sys.settrace(watch)\ndef f"),
        expect=REFUSED,
    ),
    case(
        "an interned string, by sys.intern",
        "A = 'ab'\nB = sys.intern(''.join(['c', 'd']))\n" + _ADD.format("(B is sys.intern('cd'))"),
        ("sys.intern(''.join(['c', 'd']))", "''.join(['c', 'd'])"),
        expect=PROOF,
        note="whether two equal strings are one object does not count",
    ),
    case(
        "the version of a library, by importlib.metadata",
        "import importlib.metadata\n" + _ADD.format("len(importlib.metadata.version('soundness_made'))"),
        files={"soundness_made-1.0.dist-info/METADATA": "Name: soundness_made\nVersion: 1.0\n"},
        more={
            "soundness_made-1.0.dist-info/METADATA": "",
            "soundness_made-1.0.1.dist-info/METADATA": "Name: soundness_made\nVersion: 1.0.1\n",
        },
        expect=REFUSED,
    ),
    case(
        "the largest number of digits of an int",
        """
        sys.set_int_max_str_digits(0)
        def f(x):
            try:
                return x + len(str(10**5000))
            except ValueError:
                return x
        """,
        ("digits(0)", "digits(4300)"),
        expect=PROOF,
        note="a setting inside of Python, which a method of its reads",
    ),
    case(
        "how warnings are shown",
        """
        import warnings
        HEARD = []
        warnings.simplefilter("always")
        warnings.showwarning = lambda *_, **__: None
        def f(x):
            warnings.warn("a")
            return x + len(HEARD)
        """,
        ("lambda *_, **__: None", "lambda *_, **__: HEARD.append(1)"),
        expect=REFUSED,
    ),
]
