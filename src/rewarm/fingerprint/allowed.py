"""Which code counts by its name: the lists, and why a name is on one.

Not promised: that these lists are complete. What is on none of them is followed or refused, so a missing name costs
a fingerprint, never a wrong one.
"""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


# Distributions whose code counts by name, version and the hashes of its RECORD. The import package has the same name.
DISTRIBUTIONS = frozenset({"jax", "jaxlib", "ml_dtypes", "numpy", "opt_einsum", "scipy"})

# Modules of the standard library whose functions answer from their arguments alone. Python functions of other modules
# are followed like any code, and their C functions are refused.
PURE_MODULES = words(
    "_abc _bisect _collections _collections_abc _decimal _functools _heapq _operator _sre _string _struct _typing "
    "_weakrefset abc array base64 binascii bisect builtins cmath collections collections.abc contextlib copy "
    "copyreg dataclasses decimal enum fractions functools heapq itertools keyword math numbers operator re "
    "re._casefix re._compiler re._constants re._parser reprlib string struct textwrap types typing"
)

# Builtin functions that answer from their arguments alone. `print` only writes.
PURE_BUILTINS = words(
    "abs aiter all anext any ascii bin callable chr delattr divmod format getattr hasattr hex isinstance "
    "issubclass iter len max min next oct ord pow print repr round setattr sorted sum __build_class__"
)

# Functions of trusted distributions that read files, devices, settings or hidden state, by the last part of their
# name. Methods and modules of such a name are refused as well, which is the safe side.
IMPURE = {
    "jax": words(
        "config create_device_mesh create_hybrid_device_mesh default_backend device_count devices distributed "
        "fromfile get_abstract_mesh get_backend get_mesh host_count host_id host_ids live_arrays load "
        "local_device_count local_devices make_mesh multihost_utils process_count process_index process_indices "
        "process_span"
    ),
    "jaxlib": frozenset(),
    "numpy": words(
        "DataSource ctypeslib fromfile fromregex genfromtxt geterr geterrcall get_printoptions load loadtxt memmap "
        "open_memmap random"
    ),
    "scipy": words("datasets fromfile io loadmat mmread wavfile"),
}

# Single functions of other modules of Python: they only write, or answer from their arguments alone.
PURE_FUNCTIONS = frozenset(
    {("_warnings", "warn"), ("posix", "fspath"), ("nt", "fspath")}
    | {("logging", name) for name in words("critical debug error exception info log warning")}
)

# Functions of pure modules that are not.
IMPURE_PURE = {
    "decimal": frozenset({"getcontext", "localcontext", "setcontext"}),
    "_decimal": frozenset({"getcontext", "localcontext", "setcontext"}),
    "contextlib": frozenset({"chdir"}),
    "typing": frozenset({"get_type_hints"}),
}

# What code may not read, since it leads to state that the walk does not see: namespaces, frames, line numbers,
# annotations, registries, and hashes, which of strings and plain objects differ in each process.
REFLECTION = words(
    "__annotate__ __annotations__ __builtins__ __closure__ __code__ __globals__ __hash__ __loader__ "
    "__orig_bases__ __parameters__ __self__ __spec__ __subclasses__ __traceback__ __type_params__ ag_code "
    "ag_frame co_code co_filename co_firstlineno co_lines co_lnotab co_positions cr_code cr_frame f_back "
    "f_builtins f_code f_globals f_lineno f_locals get_annotations get_type_hints gi_code gi_frame tb_frame "
    "tb_lineno"
)

# Whatever makes names of functions and classes, or the order of a class's body, visible to code. Where it is read,
# they count; elsewhere a function may be renamed.
NAMING = words(
    "__dict__ __doc__ __module__ __name__ __qualname__ ascii co_name co_qualname dir format format_map getmembers repr "
    "str vars"
)

# With these, code can name any attribute at all.
ANY_NAME = words("__dict__ __getattribute__ attrgetter getattr methodcaller")

# Attributes of values that read what lies outside them.
PATH_READS = ANY_NAME | words(
    "absolute cwd exists expanduser glob group home is_block_device is_char_device is_dir is_fifo is_file "
    "is_junction is_mount is_socket is_symlink iterdir lstat open owner read_bytes read_text readlink resolve "
    "rglob samefile stat walk"
)
# Attributes of arrays that tell of their memory, which does not count.
LAYOUT_READS = words(
    "__array_interface__ __array_struct__ c_contiguous ctypes f_contiguous fnc forc may_share_memory owndata "
    "shares_memory strides writeable C_CONTIGUOUS F_CONTIGUOUS WRITEABLE"
)
CLOCK_READS = ANY_NAME | words("astimezone fromtimestamp now timestamp today utcnow")

# Why a value of this type has none, by the module and the name of the type.
HOPELESS = {
    ("builtins", "generator"): "a generator's position cannot be read",
    ("builtins", "coroutine"): "a coroutine's position cannot be read",
    ("builtins", "async_generator"): "a generator's position cannot be read",
    ("builtins", "frame"): "a frame belongs to one run",
    ("builtins", "traceback"): "a traceback belongs to one run",
    ("builtins", "code"): "code without its globals can do anything",
    ("builtins", "memoryview"): "a view of memory that others may write",
    ("weakref", "ReferenceType"): "a weak reference may be dead in the next process",
    ("weakref", "ProxyType"): "a weak reference may be dead in the next process",
    ("weakref", "CallableProxyType"): "a weak reference may be dead in the next process",
    ("_thread", "lock"): "a lock belongs to one process",
    ("_thread", "RLock"): "a lock belongs to one process",
    ("_contextvars", "ContextVar"): "its value depends on the context",
    ("_thread", "_local"): "its value depends on the thread",
    ("_io", "TextIOWrapper"): "an open file",
    ("_io", "BufferedReader"): "an open file",
    ("_io", "BufferedWriter"): "an open file",
    ("_io", "FileIO"): "an open file",
    ("_socket", "socket"): "a socket belongs to one process",
    ("os", "_Environ"): "the environment (environ of the module os) may differ in the next process",
}
