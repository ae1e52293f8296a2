"""The acceptance walk: how far the target agrees with a token tree."""

from collections.abc import Callable

from slipstream.speculation.tree import TokenTree


def accept(tree: TokenTree, emit: Callable[[int], int | None]) -> list[int]:
    """Walk from the root to the child that holds the emitted token, until there is none.

    ``emit(node)`` gives the token that the target emits after ``node``, or None to end the walk
    (the request needs no further token). It is called on accepted nodes only, in order, so the
    emitted tokens are those of plain decoding. Returns the accepted draft nodes.
    """
    if tree.draft_nodes == 0:
        emit(tree.root)
        return []
    draft = slice(tree.root + 1, None)
    edges = zip(tree.parents[draft].tolist(), tree.tokens[draft].tolist(), strict=True)
    children = {edge: node for node, edge in enumerate(edges, start=tree.root + 1)}
    accepted: list[int] = []
    node: int | None = tree.root
    while node is not None:
        token = emit(node)
        if token is None:
            break
        node = children.get((node, token))
        if node is not None:
            accepted.append(node)
    return accepted
