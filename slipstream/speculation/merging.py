"""One tree out of two drafters' drafts."""

from slipstream.speculation.drafter import Draft, Source


def merge(first: Draft, second: Draft) -> Draft:
    """Nodes of either draft; a path that both have is one node, with the better score of the two.

    A parent stands before its children, as in both.
    """
    if not second.tokens:
        return first
    if not first.tokens:
        return second
    merged = Draft(list(first.tokens), list(first.parents), list(first.scores), list(first.origins))
    edges = zip(first.parents, first.tokens, strict=True)
    nodes = {edge: node for node, edge in enumerate(edges, start=1)}
    place = [0]  # of the second draft's nodes in the merged one, the root first
    for parent, token, score, source in zip(
        second.parents, second.tokens, second.scores, second.origins, strict=True
    ):
        edge = (place[parent], token)
        node = nodes.get(edge)
        if node is None:
            merged.tokens.append(token)
            merged.parents.append(edge[0])
            merged.scores.append(score)
            merged.sources.append(source)
            node = nodes[edge] = len(merged.tokens)
        else:
            merged.scores[node - 1] = max(merged.scores[node - 1], score)
            merged.sources[node - 1] = Source.BOTH
        place.append(node)
    return merged
