"""More functions over lists: searching, choosing, rearranging."""

import heapq
import math
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import Any

from slipstream.training.prompts.functions import reference


@reference(
    "find_sorted search_sorted bisect",
    "find the position of a value in an ascending list by binary search, or return -1",
    "search a sorted list for a number in logarithmic time; give -1 if it is absent",
    inputs="[1, 3, 5, 7], 5; [2, 4], 3; [], 1; [0, 10, 20, 30, 40], 0",
)
def binary_search(numbers: list[int], target: int) -> int:
    place = bisect_left(numbers, target)
    return place if numbers[place : place + 1] == [target] else -1


@reference(
    "count_in_sorted occurrences_sorted how_often",
    "count how often a value occurs in a sorted list without looking at every element",
    "return the number of occurrences of a number in an ascending list, by binary search",
    inputs="[1, 2, 2, 2, 3], 2; [], 5; [4, 4], 4; [1, 3], 2",
)
def count_sorted(numbers: list[int], target: int) -> int:
    return bisect_right(numbers, target) - bisect_left(numbers, target)


@reference(
    "two_sum indices_of_sum find_pair",
    "return the positions (i, j), i < j, of two numbers that add up to the target, or None",
    "find two entries with the given sum; of several pairs the one whose second index is least",
    inputs="[2, 7, 11, 15], 9; [3, 3], 6; [1, 2], 7; [5, -2, 8], 3",
)
def pair_with_sum(numbers: list[int], target: int) -> tuple[int, int] | None:
    seen: dict[int, int] = {}
    for index, number in enumerate(numbers):
        if target - number in seen:
            return seen[target - number], index
        seen[number] = index
    return None


@reference(
    "k_largest top_k largest_values",
    "return the k largest numbers of a list in descending order",
    "select the k greatest elements, the greatest first",
    inputs="[4, 1, 9, 7], 2; [5], 3; [], 1; [2, 2, 8, 8], 3",
)
def biggest(numbers: list[int], k: int) -> list[int]:
    return heapq.nlargest(k, numbers)


@reference(
    "product_of_others products_except_self all_but_one",
    "for each position return the product of all other numbers, without using division",
    "compute a list whose i-th entry is the product of everything except entry i",
    inputs="[1, 2, 3, 4]; [5, 0]; [7, 1]; [2, 2, 2]",
)
def product_except_self(numbers: list[int]) -> list[int]:
    result = [1] * len(numbers)
    before = after = 1
    for i in range(len(numbers)):
        result[i] *= before
        before *= numbers[i]
        result[-1 - i] *= after
        after *= numbers[-1 - i]
    return result


@reference(
    "max_profit best_trade stock_profit",
    "return the best profit from buying once and selling later, given daily prices; 0 if none",
    "find the largest increase from an earlier to a later price",
    inputs="[7, 1, 5, 3, 6]; [5, 4, 3]; []; [2, 9]",
)
def best_profit(prices: list[int]) -> int:
    lowest, profit = float("inf"), 0
    for price in prices:
        lowest = min(lowest, price)
        profit = max(profit, int(price - lowest))
    return profit


@reference(
    "water_between trapped_water rain_water",
    "compute how much rain water stays between bars of the given heights",
    "return the units of water trapped above a list of wall heights of width one",
    inputs="[3, 0, 2]; [1, 2, 3]; [4, 1, 0, 3]; []",
)
def trap_water(heights: list[int]) -> int:
    water = 0
    for i, height in enumerate(heights):
        level = min(max(heights[: i + 1]), max(heights[i:]))
        water += level - height
    return water


@reference(
    "longest_consecutive consecutive_run longest_sequence",
    "return the length of the longest run of consecutive integers in an unsorted list",
    "find how many numbers the longest chain n, n + 1, n + 2, ... in an unsorted list has",
    inputs="[10, 4, 3, 11, 5]; []; [7, 7]; [1, 9, 2, 8, 3]",
)
def longest_chain(numbers: list[int]) -> int:
    present = set(numbers)
    best = 0
    for number in present:
        if number - 1 not in present:
            end = number
            while end in present:
                end += 1
            best = max(best, end - number)
    return best


@reference(
    "subsets all_subsets power_set",
    "return all sublists that can be chosen from a list, by size and then by position",
    "list every subset of the elements, the empty one first and larger ones later",
    inputs="[1, 2]; []; ['a', 'b', 'c']; [5]",
)
def powerset(items: list[Any]) -> list[list[Any]]:
    chosen: list[list[Any]] = [[]]
    for item in items:
        chosen += [[*subset, item] for subset in chosen]
    return sorted(chosen, key=lambda subset: (len(subset), [items.index(i) for i in subset]))


@reference(
    "all_permutations arrangements orders",
    "return all permutations of a list of different elements, in lexicographic order of position",
    "list every order in which the elements can be arranged",
    inputs="[1, 2, 3]; ['x']; []; ['a', 'b']",
)
def permutations(items: list[Any]) -> list[list[Any]]:
    if not items:
        return [[]]
    return [
        [item, *rest]
        for index, item in enumerate(items)
        for rest in permutations(items[:index] + items[index + 1 :])
    ]


@reference(
    "deep_flatten flatten_deep unnest",
    "flatten a list that is nested to any depth",
    "return the elements of arbitrarily nested lists as one flat list",
    inputs="[1, [2, [3, [4]]]]; []; [[], [[]]]; ['a', ['b'], 'c']",
)
def flatten_all(nested: list[Any]) -> list[Any]:
    flat: list[Any] = []
    for item in nested:
        flat += flatten_all(item) if isinstance(item, list) else [item]
    return flat


@reference(
    "depth nesting_depth list_depth",
    "return how deeply a list is nested; a list without inner lists has depth 1",
    "compute the maximum nesting depth of a list",
    inputs="[1, 2]; [1, [2, [3]]]; []; [[], [[5]]]",
)
def nested_depth(nested: list[Any]) -> int:
    return 1 + max((nested_depth(item) for item in nested if isinstance(item, list)), default=0)


@reference(
    "selection_sort sort_by_selection sorted_by_minimum",
    "sort a list of numbers in ascending order with selection sort, without changing the argument",
    "return a sorted copy of a list by repeatedly taking the smallest remaining element",
    inputs="[3, 1, 2]; []; [5, -1, 5]; [9, 8, 7, 6]",
)
def sort_list(numbers: list[int]) -> list[int]:
    left = list(numbers)
    result: list[int] = []
    while left:
        smallest = min(left)
        left.remove(smallest)
        result.append(smallest)
    return result


@reference(
    "bubble_passes sort_passes passes_needed",
    "count the swaps that bubble sort makes on a list of numbers",
    "return how many exchanges of neighbours bubble sort needs",
    inputs="[3, 2, 1]; [1, 2, 3]; [2, 1, 4, 3]; []",
)
def bubble_sort_swaps(numbers: list[int]) -> int:
    values, swaps = list(numbers), 0
    for end in range(len(values) - 1, 0, -1):
        for i in range(end):
            if values[i] > values[i + 1]:
                values[i], values[i + 1] = values[i + 1], values[i]
                swaps += 1
    return swaps


@reference(
    "is_subsequence contains_in_order subsequence",
    "check whether the elements of the first list occur in the second one in the same order",
    "tell whether the first list can be made from the second by deleting elements",
    inputs="[1, 3], [1, 2, 3]; [3, 1], [1, 2, 3]; [], [5]; ['a'], []",
)
def occurs_in_order(first: list[Any], second: list[Any]) -> bool:
    remaining = iter(second)
    return all(item in remaining for item in first)


@reference(
    "equilibrium balance_point pivot_index",
    "return the first index at which the sums to its left and to its right are equal, or -1",
    "find the position that splits a list into two parts of equal sum, not counting itself",
    inputs="[1, 7, 3, 6, 5, 6]; [1, 2]; [4]; [2, 0, 2]",
)
def balance_index(numbers: list[int]) -> int:
    left, total = 0, sum(numbers)
    for index, number in enumerate(numbers):
        if 2 * left + number == total:
            return index
        left += number
    return -1


@reference(
    "next_greater next_larger following_greater",
    "for each number return the next larger one to its right, or -1 if there is none",
    "compute, for every element, the first later element that exceeds it",
    inputs="[2, 1, 3]; [5, 4]; []; [1, 3, 2, 4]",
)
def next_greater_elements(numbers: list[int]) -> list[int]:
    result = [-1] * len(numbers)
    waiting: list[int] = []
    for index, number in enumerate(numbers):
        while waiting and numbers[waiting[-1]] < number:
            result[waiting.pop()] = number
        waiting.append(index)
    return result


@reference(
    "ranges summarize_ranges to_ranges",
    "summarise a sorted list of integers as ranges, such as '1-3', and single numbers",
    "write runs of consecutive numbers as 'first-last' and the others alone",
    inputs="[1, 2, 3, 7, 9, 10]; []; [4]; [-2, -1, 5]",
)
def compress_ranges(numbers: list[int]) -> list[str]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]


@reference(
    "expand parse_ranges expand_range_list",
    "expand a text such as '1-3,7' to the list of integers that it describes",
    "turn comma-separated page numbers and ranges into a list of numbers",
    inputs="'1-3,7'; '5'; '10-12,1,2-2'",
)
def expand_ranges(text: str) -> list[int]:
    result: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        result += range(int(low), int(high or low) + 1)
    return result


@reference(
    "josephus last_one_standing survivor",
    "return who remains when n people stand in a circle and every k-th is removed, counting from 1",
    "solve the Josephus problem for n people and step k",
    inputs="7, 3; 1, 5; 5, 2; 10, 3",
)
def last_person(n: int, k: int) -> int:
    circle = list(range(1, n + 1))
    place = 0
    while len(circle) > 1:
        place = (place + k - 1) % len(circle)
        circle.pop(place)
    return circle[0]


@reference(
    "cycle_through round_robin take_turns",
    "distribute items among n lists in turn, like dealing cards",
    "deal a list of items to n players one after another and return the n hands",
    inputs="[1, 2, 3, 4, 5], 2; [], 3; ['a', 'b'], 3; [9, 8, 7], 1",
)
def deal(items: list[Any], n: int) -> list[list[Any]]:
    return [items[start::n] for start in range(n)]


@reference(
    "swap_ends swap_first_last exchange_ends",
    "swap the first and last element of a list and return a new list",
    "exchange the two ends of a list; shorter lists than two stay as they are",
    inputs="[1, 2, 3]; [5]; []; ['x', 'y']",
)
def swapped_ends(items: list[Any]) -> list[Any]:
    if len(items) < 2:
        return list(items)
    return [items[-1], *items[1:-1], items[0]]


@reference(
    "smallest_missing first_missing_positive lowest_free_number",
    "return the smallest positive integer that is not in a list",
    "find the first of 1, 2, 3, ... that a list does not contain",
    inputs="[1, 2, 4]; []; [3, 4, -1, 1]; [7, 8]",
)
def first_free(numbers: list[int]) -> int:
    candidate = 1
    while candidate in numbers:
        candidate += 1
    return candidate


@reference(
    "sort_by_frequency frequency_sort by_count",
    "sort numbers by how often they occur, most frequent first, and equal counts by value",
    "return all elements ordered by descending frequency, then ascending value",
    inputs="[1, 2, 2, 3, 3, 3]; []; [4, 4, 1, 1, 6]; [9]",
)
def order_by_frequency(numbers: list[int]) -> list[int]:
    return sorted(numbers, key=lambda n: (-numbers.count(n), n))


@reference(
    "split_at split_list cut_at_value",
    "split a list at every occurrence of a separator, which is dropped; empty parts are kept",
    "cut a list into parts wherever the given element occurs",
    inputs="[1, 0, 2, 3, 0], 0; ['a', '-', 'b'], '-'; [], 1; [5, 6], 7",
)
def split_by(items: list[Any], separator: Any) -> list[list[Any]]:
    parts: list[list[Any]] = [[]]
    for item in items:
        if item == separator:
            parts.append([])
        else:
            parts[-1].append(item)
    return parts


@reference(
    "steepest_rise largest_jump biggest_step",
    "return the largest increase from one element to the next; 0 if the list never rises",
    "find the greatest upward step between neighbouring numbers",
    inputs="[1, 5, 4, 10]; [3, 2]; []; [-4, -1, 0]",
)
def largest_increase(numbers: list[int]) -> int:
    return max([0, *(b - a for a, b in pairwise(numbers))])


@reference(
    "weighted_mean weighted_average average_with_weights",
    "compute the weighted mean of numbers, rounded to two decimals",
    "return the average of values, each counted with its weight; round to 2 digits",
    inputs="[1, 2, 3], [1, 1, 2]; [10], [5]; [80, 90, 70], [2, 3, 5]",
)
def weighted(numbers: list[float], weights: list[float]) -> float:
    total = sum(n * w for n, w in zip(numbers, weights, strict=True))
    return round(total / sum(weights), 2)


@reference(
    "std_dev standard_deviation spread",
    "compute the population standard deviation of a list of numbers, rounded to two decimals",
    "return how far values spread around their mean: the standard deviation with 2 digits",
    inputs="[2, 4, 4, 4, 5, 5, 7, 9]; [3, 3]; [1, 2]; [10]",
)
def deviation(numbers: list[float]) -> float:
    mean = sum(numbers) / len(numbers)
    variance = sum((n - mean) ** 2 for n in numbers) / len(numbers)
    return round(math.sqrt(variance), 2)


@reference(
    "longest_increasing_subsequence lis_length increasing_subsequence",
    "return the length of the longest strictly increasing subsequence of a list",
    "find how many elements can be kept, in order, so that they strictly increase",
    inputs="[10, 9, 2, 5, 3, 7]; []; [4, 4]; [1, 2, 3]",
)
def lis(numbers: list[int]) -> int:
    tails: list[int] = []
    for number in numbers:
        place = bisect_left(tails, number)
        tails[place : place + 1] = [number]
    return len(tails)


@reference(
    "knapsack best_value pack_bag",
    "return the largest total value of items (weight, value) that fit into a capacity",
    "solve the 0/1 knapsack problem for a list of (weight, value) pairs",
    inputs="[(1, 1), (3, 4), (4, 5)], 7; [], 5; [(6, 10)], 5; [(2, 3), (2, 3), (3, 5)], 5",
)
def fill_knapsack(items: list[tuple[int, int]], capacity: int) -> int:
    best = [0] * (capacity + 1)
    for weight, value in items:
        for room in range(capacity, weight - 1, -1):
            best[room] = max(best[room], best[room - weight] + value)
    return best[capacity]


@reference(
    "subset_sum can_reach_sum has_subset_with_sum",
    "check whether some of the given positive numbers add up exactly to the target",
    "tell whether a subset of a list has the given sum",
    inputs="[3, 34, 4, 12], 7; [5], 3; [], 0; [2, 4, 6], 9",
)
def reaches_sum(numbers: list[int], target: int) -> bool:
    reachable = {0}
    for number in numbers:
        reachable |= {total + number for total in reachable}
    return target in reachable
