"""Tests that load XLA:GPU's tuning results, or dump them, under Bazel.

Not promised: that a rule forwards `env` and `args` to the test; `py_test`, `cc_test` and the other *_test rules do. No
Bazel has run this yet: it is tested with another reader of its language.

The macro adds what XLA's own recipe for persisted autotuning asks for, and nothing else: flags of XLA's in `XLA_FLAGS`
(for any program with XLA in it), or options of rewarm's pytest plugin in `args` (for a `py_test` that runs pytest, which
then also says which test tuned, and why). XLA and rewarm both read these paths:

    TEST_WORKSPACE/x                   a file of the test's data
    TEST_UNDECLARED_OUTPUTS_DIR/x      a file that Bazel keeps after the test, in bazel-testlogs/.../test.outputs

BUILD.example beside this file shows both.
"""

_DIRECTORY = "--xla_gpu_per_fusion_autotune_cache_dir"
_LOAD = "--xla_gpu_load_autotune_results_from"
_DUMP = "--xla_gpu_dump_autotune_results_to"

# What a name cannot have that goes through Bazel's expansion of env and args, and XLA's own splitting of its flags.
_STRANGE = " \t\r\n\"'`$\\)"

def autotuned_test(rule, name, autotune_load = None, autotune_dump = None, pytest = False, **kwargs):
    """A test with tuning results.

    Args:
      rule: the test rule or macro to call: `py_test`, `cc_test`.
      name: of the test.
      autotune_load: label of a file of results (.textproto for text, .pb for binary), which is added to `data` if it is
        not there. The test may be sharded.
      autotune_dump: name of a file for the results of this run, in the test's undeclared outputs. With XLA's flags each
        process writes the whole file anew, so such a test is not sharded; with the plugin each shard has a file of its
        own, and `rewarm autotune merge` makes one of them.
      pytest: use the options of rewarm's pytest plugin in place of XLA's flags.
      **kwargs: everything else for the rule. `env`, `args` and `data` are added to.
    """
    if autotune_load == None and autotune_dump == None:
        fail("autotuned_test %s: expected autotune_load, autotune_dump or both" % name)
    _refuse_names(name, autotune_load, autotune_dump)
    loaded = "TEST_WORKSPACE/$(rootpath %s)" % autotune_load if autotune_load != None else None
    dumped = "TEST_UNDECLARED_OUTPUTS_DIR/%s" % autotune_dump if autotune_dump != None else None

    # None is what rules take for an attribute that is left out, and macros hand it on.
    kwargs = {key: value for key, value in kwargs.items() if value != None}
    if autotune_load != None:
        kwargs["data"] = _with_label(kwargs.get("data", []), autotune_load)
    _refuse_other_ways(name, kwargs.get("env", {}))
    if pytest:
        options = _options([("--rewarm-autotune-load", loaded), ("--rewarm-autotune-dump", dumped)])
        kwargs["args"] = kwargs.get("args", []) + options
    else:
        env = dict(kwargs.get("env", {}))
        there = [env["XLA_FLAGS"]] if env.get("XLA_FLAGS") else []
        env["XLA_FLAGS"] = " ".join(there + _options([(_LOAD, loaded), (_DUMP, dumped)]))
        kwargs["env"] = env
        if autotune_dump != None:
            if kwargs.get("shard_count", 1) != 1:
                fail("autotuned_test %s: each shard would dump a part; leave shard_count out, or set pytest = True" % name)
            kwargs.pop("shard_count", None)
    rule(name = name, **kwargs)

def _refuse_names(name, loaded, dumped):
    for attribute, value, kind in (("autotune_load", loaded, "a label"), ("autotune_dump", dumped, "a file's name in the outputs")):
        if value == None:
            continue
        if str(value) == "" or [one for one in _STRANGE.elems() if one in str(value)]:
            fail("autotuned_test %s: %s must be %s without blanks, quotes, $, \\ and closing brackets, found %r" % (name, attribute, kind, value))
    if dumped != None and not _is_inside(dumped):
        fail("autotuned_test %s: autotune_dump must be a file's name in the outputs, found %r" % (name, dumped))

def _with_label(data, label):
    """Bazel refuses a label that is there twice. What a select() chooses, and other packages' names, are not looked at."""
    if type(data) == "list" and [one for one in data if _plain(one) == _plain(label)]:
        return data
    return data + [label]

def _plain(label):
    return str(label)[1:] if str(label).startswith(":") else str(label)

def _options(pairs):
    return ["%s=%s" % (option, value) for option, value in pairs if value != None]

def _is_inside(name):
    return not [part for part in name.split("/") if part in ("", ".", "..")]

def _refuse_other_ways(name, env):
    if type(env) != "dict":
        fail("autotuned_test %s: env must be a dict, found a %s, which cannot be added to" % (name, type(env)))
    for flag in (_DIRECTORY, _LOAD, _DUMP):
        if flag + "=" in (env.get("XLA_FLAGS") or ""):
            fail("autotuned_test %s: XLA_FLAGS has %s already, and two ways are not to be mixed" % (name, flag))
