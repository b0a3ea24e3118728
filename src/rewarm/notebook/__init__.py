"""rewarm in a notebook: `%load_ext rewarm`, then `%rewarm on`.

Not promised: effect on programs that the kernel has compiled already; `%rewarm on` says how many there are. IPython is
the user's: rewarm asks for none, and nothing here is imported before `%load_ext`. docs/notebooks.md has the commands.
"""
