"""Check that a call is refused by a named error."""

import pytest


def refused(call, error, word):
    """Assert that a call raises exactly this class of error.

    Args:
        call: A function without arguments.
        error: The exact class of the error: a subclass of it is another error.
        word: A text that the message must contain.

    Returns:
        The whole message.
    """
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    message = str(caught.value)
    assert word in message, message
    return message
