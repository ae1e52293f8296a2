"""Functions over dictionaries, and over lists of records."""

from collections import Counter, defaultdict
from typing import Any

from slipstream.training.prompts.functions import reference


@reference(
    "invert swap_keys_and_values flip_dict",
    "exchange the keys and values of a dictionary whose values are all different",
    "return a new dictionary in which every value points to its key",
    inputs="{'a': 1, 'b': 2}; {}; {'x': 'y'}; {1: 'one', 2: 'two', 3: 'three'}",
)
def invert_dict(mapping: dict[Any, Any]) -> dict[Any, Any]:
    return {value: key for key, value in mapping.items()}


@reference(
    "add_counts merge_counts combine_totals",
    "merge two dictionaries of numbers; values of keys that both have are added",
    "combine two tallies into one by summing the counts of equal keys",
    inputs="{'a': 1}, {'a': 2, 'b': 5}; {}, {'z': 1}; {'x': 3, 'y': 4}, {}",
)
def merge_tallies(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    merged = dict(first)
    for key, value in second.items():
        merged[key] = merged.get(key, 0) + value
    return merged


@reference(
    "group_by_length words_by_length bucket_words",
    "group words by their length: a dictionary from length to the words in their order",
    "sort words into lists according to how many letters they have",
    inputs="['a', 'to', 'be', 'sun']; []; ['one', 'two', 'three']; ['hi']",
)
def by_length(words: list[str]) -> dict[int, list[str]]:
    groups: dict[int, list[str]] = defaultdict(list)
    for word in words:
        groups[len(word)].append(word)
    return dict(groups)


@reference(
    "group_anagrams anagram_groups collect_anagrams",
    "group words that are anagrams of each other, each group in order of appearance",
    "return lists of words that consist of the same letters",
    inputs="['tea', 'eat', 'tan', 'ate', 'nat']; []; ['solo']; ['ab', 'ba', 'abc']",
)
def anagram_lists(words: list[str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for word in words:
        groups.setdefault("".join(sorted(word)), []).append(word)
    return list(groups.values())


@reference(
    "flatten_keys flatten_mapping dotted_keys",
    "flatten a nested dictionary, joining the keys of each path with dots",
    "turn nested dictionaries into a flat one whose keys look like 'outer.inner'",
    inputs="{'a': {'b': 1, 'c': {'d': 2}}}; {}; {'x': 5}; {'p': {'q': {}}, 'r': 0}",
)
def flatten_dict(mapping: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, dict):
            for inner, item in flatten_dict(value).items():
                flat[f"{key}.{inner}"] = item
        else:
            flat[key] = value
    return flat


@reference(
    "average_per_subject mean_grades subject_means",
    "compute the average grade of each subject from (subject, grade) pairs, to one decimal",
    "return a dictionary that gives for each subject the mean of its grades, rounded to 1 digit",
    inputs="[('art', 2), ('art', 3), ('maths', 1)]; []; [('music', 4)]",
)
def grade_averages(grades: list[tuple[str, int]]) -> dict[str, float]:
    by_subject: dict[str, list[int]] = {}
    for subject, grade in grades:
        by_subject.setdefault(subject, []).append(grade)
    return {subject: round(sum(got) / len(got), 1) for subject, got in by_subject.items()}


@reference(
    "best_customer top_buyer biggest_spender",
    "return the customer with the highest total, given (customer, amount) pairs; None if empty",
    "find out who spent the most when each purchase is a pair of a name and an amount",
    inputs="[('Ann', 5), ('Bo', 7), ('Ann', 4)]; []; [('Cy', 1)]",
)
def top_customer(purchases: list[tuple[str, int]]) -> str | None:
    totals: Counter[str] = Counter()
    for name, amount in purchases:
        totals[name] += amount
    return max(totals, key=lambda name: totals[name]) if totals else None


@reference(
    "changed_keys dict_diff compare_dicts",
    "list, in sorted order, the keys whose values differ or that only one dictionary has",
    "return the sorted keys in which two dictionaries are not alike",
    inputs="{'a': 1, 'b': 2}, {'a': 1, 'b': 3}; {}, {'k': 0}; {'x': 1}, {'x': 1}",
)
def differing_keys(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    keys = first.keys() | second.keys()
    absent = object()
    return sorted(key for key in keys if first.get(key, absent) != second.get(key, absent))


@reference(
    "keep_keys select_keys pick_fields",
    "return a dictionary with only the given keys; keys that are missing are left out",
    "select some of the entries of a dictionary by their keys, in the order of the list",
    inputs="{'id': 7, 'name': 'Eve', 'age': 30}, ['name', 'id']; {}, ['a']; {'q': 1}, []",
)
def pick(mapping: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    return {key: mapping[key] for key in keys if key in mapping}


@reference(
    "sort_by_value order_by_count ranked_items",
    "return the keys of a dictionary ordered by descending value, equal values alphabetically",
    "rank the names in a score table from the highest to the lowest score; ties go by name",
    inputs="{'ann': 3, 'bob': 9, 'cat': 3}; {}; {'z': 1, 'a': 1}",
)
def ranking(scores: dict[str, int]) -> list[str]:
    return sorted(scores, key=lambda name: (-scores[name], name))


@reference(
    "total_stock inventory_value stock_value",
    "return the value of an inventory: quantity times price, summed over all items in stock",
    "compute what all goods are worth, given quantities and prices by name",
    inputs="{'nut': 10, 'bolt': 5}, {'nut': 2, 'bolt': 3}; {}, {'nut': 1}; {'saw': 1}, {'saw': 9}",
)
def value_of_stock(quantities: dict[str, int], prices: dict[str, int]) -> int:
    return sum(count * prices[name] for name, count in quantities.items())


@reference(
    "parse_query query_to_dict read_query_string",
    "parse a query string such as 'a=1&b=2' into a dictionary of strings",
    "turn the parameters of a URL into key-value pairs; later values win",
    inputs="'name=Ada&lang=en'; ''; 'x=1&x=2'; 'flag='",
)
def query_parameters(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split("&") if part]
    return {key: value for key, _, value in pairs}


@reference(
    "index_words inverted_index build_index",
    "map each word to the list of numbers of the documents that contain it, counting from 0",
    "build an inverted index of a list of texts: for each word the documents it occurs in",
    inputs="['red fox', 'red hen']; []; ['a b a']; ['one', 'two one', 'two']",
)
def word_index(texts: list[str]) -> dict[str, list[int]]:
    index: dict[str, list[int]] = {}
    for number, text in enumerate(texts):
        for word in dict.fromkeys(text.split()):
            index.setdefault(word, []).append(number)
    return index


@reference(
    "filter_adults adults names_of_adults",
    "return the names of all people who are at least 18, sorted; a person is a dictionary",
    "list, in alphabetical order, the names of the records whose age is 18 or more",
    inputs="[{'name': 'Zoe', 'age': 20}, {'name': 'Al', 'age': 44}, {'name': 'Kim', 'age': 9}]; []",
)
def adult_names(people: list[dict[str, Any]]) -> list[str]:
    return sorted(person["name"] for person in people if person["age"] >= 18)


@reference(
    "vote_winner election_result winner",
    "return the candidate with most votes; of equal ones, the alphabetically first; None if empty",
    "count the votes in a list of names and return the winner",
    inputs="['Kay', 'Lee', 'Kay']; []; ['b', 'a']; ['x', 'y', 'y', 'x', 'z']",
)
def election_winner(votes: list[str]) -> str | None:
    counts = Counter(votes)
    return min(counts, key=lambda name: (-counts[name], name)) if counts else None


@reference(
    "deep_get get_path lookup",
    "follow a dotted path such as 'a.b.c' into nested dictionaries; None if a key is missing",
    "return the value at a path of keys joined by dots, or None",
    inputs="{'a': {'b': 3}}, 'a.b'; {'a': {}}, 'a.x'; {}, 'k'; {'p': {'q': {'r': 's'}}}, 'p.q'",
)
def nested_value(mapping: dict[str, Any], path: str) -> Any:
    value: Any = mapping
    for key in path.split("."):
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return value


@reference(
    "pairs_to_dict collect_values multimap",
    "collect (key, value) pairs into a dictionary from each key to the list of its values",
    "build a mapping from keys to lists out of a list of pairs",
    inputs="[('a', 1), ('b', 2), ('a', 3)]; []; [('k', 'v')]",
)
def gather(pairs: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    result: dict[str, list[Any]] = {}
    for key, value in pairs:
        result.setdefault(key, []).append(value)
    return result


@reference(
    "shortest_route fewest_edges bfs_distance",
    "return the number of edges on a shortest path between two nodes of a graph, or -1",
    "find with breadth-first search how many steps lead from start to goal; -1 if none do",
    inputs="{'a': ['b'], 'b': ['c'], 'c': []}, 'a', 'c'; {'x': []}, 'x', 'y'",
)
def path_length(graph: dict[str, list[str]], start: str, goal: str) -> int:
    distances = {start: 0}
    queue = [start]
    for node in queue:
        for neighbour in graph.get(node, []):
            if neighbour not in distances:
                distances[neighbour] = distances[node] + 1
                queue.append(neighbour)
    return distances.get(goal, -1)


@reference(
    "reachable reachable_nodes nodes_from",
    "return all nodes of a directed graph that can be reached from a node, sorted",
    "list in sorted order every node that a path from the start leads to, the start included",
    inputs="{'a': ['b', 'c'], 'b': [], 'c': ['b']}, 'a'; {'p': ['q'], 'q': ['p']}, 'q'; {}, 'z'",
)
def find_reachable(graph: dict[str, list[str]], start: str) -> list[str]:
    found = {start}
    waiting = [start]
    while waiting:
        for neighbour in graph.get(waiting.pop(), []):
            if neighbour not in found:
                found.add(neighbour)
                waiting.append(neighbour)
    return sorted(found)


@reference(
    "task_order topological_sort build_order",
    "order tasks so that each comes after those it depends on; alphabetically where it is free",
    "return a topological order of the keys, where each key maps to what must come before it",
    inputs="{'eat': ['cook'], 'cook': ['shop'], 'shop': []}; {}; {'b': [], 'a': []}",
)
def dependency_order(needs: dict[str, list[str]]) -> list[str]:
    order: list[str] = []
    while len(order) < len(needs):
        ready = sorted(
            task
            for task in needs
            if task not in order and all(need in order for need in needs[task])
        )
        if not ready:
            raise ValueError("the tasks depend on each other in a circle")
        order.append(ready[0])
    return order
