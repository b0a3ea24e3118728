"""What C functions may be called without the result of a trace depending on more than is guarded: the lists.

Not promised: that they are complete. What is on none of them refuses a program, which then traces as always.
"""

from __future__ import annotations

import functools

from rewarm.fingerprint.allowed import IMPURE, PURE_BUILTINS, PURE_MODULES, words


@functools.lru_cache(maxsize=1 << 14)
def is_pure(module: str, name: str) -> bool:
    """Whether a C function's answer follows from its arguments, whoever calls it."""
    top = module.partition(".")[0]
    if module == "builtins":
        return "." in name or name in PURE_BUILTINS
    return module in PURE_MODULES or top in ("jaxlib", "ml_dtypes")


# Names that code may mention though what they give depends on more than their arguments: that is seen while
# they run (files and the environment), or it is in the key of the program (devices, options of JAX).
_NAMES = {
    "jax": words(
        "config create_device_mesh create_hybrid_device_mesh default_backend device_count devices distributed "
        "fromfile get_abstract_mesh get_backend get_mesh host_count host_id host_ids load local_device_count "
        "local_devices make_mesh multihost_utils process_count process_index process_indices process_span"
    ),
    "numpy": words("DataSource fromfile fromregex genfromtxt load loadtxt open_memmap"),
    "scipy": words("fromfile io loadmat mmread wavfile"),
    "python": frozenset({"open", "get_type_hints", "vars", "dir"}),
}
# C functions of Python's modules that are looked into while they run, or that other modules hold under their names.
_C_NAMES = frozenset({("io", "open"), ("_io", "open"), ("threading", "get_ident")})
# Modules whose C functions answer by what was there before: nobody sees that where a result was kept.
_OUTWARD = frozenset({"_io", "_contextvars", "_locale", "io"})


# Modules of Python's whose Python code answers by what lies outside the program, or has looked there before.
_ANSWER_FROM_OUTSIDE = words(
    "asyncio cProfile code codeop concurrent ctypes dbm dis faulthandler fileinput gc getpass gettext glob http "
    "importlib linecache locale mimetypes mmap multiprocessing netrc pdb pkgutil platform profile random resource "
    "runpy sched secrets select selectors shelve shutil signal site socket sqlite3 ssl subprocess symtable sysconfig "
    "tempfile timeit trace traceback tracemalloc urllib uuid webbrowser zipimport"
)
_NAMES_FROM_OUTSIDE = {
    "inspect": words(
        "currentframe findsource getcomments getfile getinnerframes getmembers getmembers_static getmodule "
        "getouterframes getsource getsourcefile getsourcelines stack trace getclosurevars"
    ),
    "threading": words("active_count current_thread currentThread enumerate main_thread"),
}


def answers_from_outside(module: str, name: str) -> bool:
    """Whether a Python function of Python's own library is not one of its arguments, though no call of C shows it."""
    return module.partition(".")[0] in _ANSWER_FROM_OUTSIDE or name in _NAMES_FROM_OUTSIDE.get(module, ())


def may_name_of_c(module: str, name: str, *, strictly: bool) -> bool:
    """Whether code may mention a C function of a module of Python's that is not pure."""
    if strictly:
        return module not in _OUTWARD and may_be_called(module, name)
    return (module, name) in _C_NAMES or may_be_called(module, name)


def may_be_named(owner: str, module: str, name: str) -> bool:
    """Whether code may mention a name that would otherwise refuse it.

    Args:
      owner: the distribution, or "python".
      module: where it is.
      name: what it is called there.
    """
    leaf = name.rpartition(".")[2]
    allowed = _NAMES.get(owner, frozenset())
    return all(word in allowed for word in (leaf, *module.split(".")[1:]) if _is_suspect(owner, word))


def _is_suspect(owner: str, word: str) -> bool:
    if owner == "python":
        return bool(word)
    return word in IMPURE.get(owner, frozenset())


# C functions of modules that are not pure and that anybody may call: locks and contexts, whose state counts by value
# where code can reach it, what files hold (opening them is seen), and Python's own workings.
_CALLS = {
    "_thread": None,
    "_contextvars": None,
    "_weakref": None,
    "weakref": None,
    "_io": None,
    "io": words("open open_code text_encoding"),
    "_warnings": None,
    "atexit": words("register unregister"),
    "_codecs": None,
    "_locale": None,
    "posix": words("fspath _path_normpath _path_splitroot _path_splitroot_ex"),
    "sys": words("exc_info intern is_finalizing call_tracing audit exception"),
    "builtins": words("vars dir open super"),
    "inspect": words("_ParameterKind"),
    "gc": words("isenabled enable disable"),
    "_json": None,
    "_pickle": None,
    "_hashlib": None,
    "_sha1": None,
    "_sha2": None,
    "_md5": None,
    "_blake2": None,
    "_statistics": None,
    "unicodedata": None,
    "zlib": None,
}
_NOT = frozenset(
    {
        ("_thread", name)
        for name in ("start_new_thread", "start_joinable_thread", "get_native_id", "_count", "stack_size")
    }
    | {("_thread", "get_ident"), ("_contextvars", "copy_context")}
    | {("_weakref", "getweakrefcount"), ("_weakref", "getweakrefs")}
)
# Of these, what others may: as the key of what belongs to a thread, to run something in a context, to print.
_FOR_THEIR_OWN_SAKE = frozenset(
    {("_thread", "get_ident"), ("_contextvars", "copy_context"), ("sys", "getrecursionlimit"), ("sys", "getsizeof")}
)
_CLOCKS = words("datetime.now datetime.utcnow datetime.today date.today datetime.fromtimestamp date.fromtimestamp")
# What Python's own modules do whoever asks them.
_BY_PYTHON = frozenset(
    {("builtins", name) for name in ("id", "hash", "compile", "exec", "eval", "__import__")}
    | {("sys", name) for name in ("getrefcount", "settrace", "gettrace")}
    | _FOR_THEIR_OWN_SAKE
)
# The time and the process that a log line shows.
_LOGGING = frozenset(
    {("time", name) for name in ("time", "time_ns", "localtime", "gmtime", "strftime")}
    | {("posix", "getpid"), ("nt", "getpid"), ("sys", "_getframe"), ("_asyncio", "current_task")}
)
_NAMING_MODULES = words("abc collections dataclasses enum typing warnings")
_HARMLESS_PYTHON = words(
    "_collections_abc _py_abc _weakrefset abc ast collections contextlib contextvars copy dataclasses enum functools "
    "inspect linecache logging reprlib threading tokenize traceback types typing warnings weakref"
)
# C functions that libraries call for reasons of their own, by the package that calls: numbers of objects as keys.
_BY_LIBRARIES = frozenset(
    {("builtins", name) for name in ("id", "hash", "globals", "locals", "compile")}
    | {("sys", "_getframe")}
    | _FOR_THEIR_OWN_SAKE
)
_LIBRARIES = words(
    "blackjax chex diffrax distrax einops equinox flax haiku jaxopt jaxtyping jmp lineax numpyro opt_einsum optax "
    "optimistix orbax penzai rlax tree typeguard typing_extensions beartype wadler_lindig treescope"
)
# Single ones: an unguessable name for an object; lines of code for messages.
_KNOWN = frozenset({("posix", "urandom", "equinox._jit"), ("posix", "stat", "equinox._errors")})
_KNOWN_EFFECTS = frozenset({("open", "equinox._errors")})


def is_random(module: str) -> bool:
    """Whether the module makes random numbers."""
    return module in ("_random", "random") or module == "numpy.random" or module.startswith("numpy.random.")


@functools.lru_cache(maxsize=1 << 14)
def is_of_no_interest(module: str, name: str) -> bool:
    """Whether nobody's call of this C function ever refuses."""
    return not is_random(module) and module != "atexit" and may_be_called(module, name)


def may_be_called(module: str, name: str) -> bool:
    """Whether anybody may call this C function while a function is traced."""
    if is_pure(module, name):
        return True
    top = module.partition(".")[0]
    if top in ("numpy", "jax", "scipy"):
        return True
    if module == "datetime":
        return name not in _CLOCKS
    if (module, name) in _NOT or module not in _CALLS:
        return False
    allowed = _CALLS[module]
    return allowed is None or name in allowed


def may_python_call(module: str, name: str, caller: str) -> bool:
    """Whether a module of Python's own may call this C function."""
    if caller == "logging" and (module, name) in _LOGGING:
        return True
    if module == "sys" and name in ("_getframe", "_getframemodulename"):  # to find out in which module a class is made
        return caller in _NAMING_MODULES
    return (module, name) in _BY_PYTHON and caller in _HARMLESS_PYTHON


def may_library_call(module: str, name: str, caller: str) -> bool:
    """Whether a module of an installed package may."""
    if (module, name, caller) in _KNOWN:
        return True
    if caller.partition(".")[0] not in _LIBRARIES:
        return False
    return (module, name) in _BY_LIBRARIES or module.partition(".")[0] in _LIBRARIES


def is_known_effect(event: str, caller: str) -> bool:
    """Whether this is known to have nothing to do with the program that is traced."""
    return (event, caller) in _KNOWN_EFFECTS


def why_not(module: str, name: str) -> str:
    """Why a call of a C function refuses."""
    if module == "time" or (module == "datetime" and name in _CLOCKS):
        return "the time is another in each process"
    if module in ("posix", "nt"):
        return "what the operating system says may be another in the next process"
    if (module, name) == ("builtins", "id"):
        return "the number of an object is another in each process"
    if (module, name) == ("builtins", "hash"):
        return "hashes of strings and objects are others in each process"
    if (module, name) in (("builtins", "exec"), ("builtins", "eval"), ("builtins", "compile")):
        return "code that is made of text cannot be followed"
    return "a C function of a module that is not known, which may read anything"


# Where `jax.shard_map` keeps the axes: none for all of its mesh's, until its first call fills them in.
AXES_OF_MESH = ("_src.shard_map", "_shard_map.<locals>.wrapped", "axis_names", "mesh")

# Captured numbers that code of a library turns into floating point when it first runs, and never changes again: module,
# function, variable.
MADE_FLOAT = frozenset({("optax.schedules._schedule", "cosine_decay_schedule.<locals>.schedule", "decay_steps")})
