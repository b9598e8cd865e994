"""Bad options whose refusals contain the name of the option."""


def named(call, **bad):
    """Return a call for each bad option, and its name.

    Args:
        call: A function that takes each of the options.
        bad: The options.
    """
    return [(lambda name=name, value=value: call(**{name: value}), name) for name, value in bad.items()]
