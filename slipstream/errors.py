"""The one exception whose text is meant for the person at the keyboard."""


class UserError(Exception):
    """Bad input: the message is one line that says what is wrong and what would be right.

    The command line prints it without a traceback and exits with status 2.
    """
