"""Functions over numbers."""

import math
from itertools import pairwise

from slipstream.training.prompts.functions import reference


@reference(
    "sum_digits digit_total add_digits",
    "return the sum of the decimal digits of an integer; the sign does not matter",
    "add up all digits of a whole number",
    inputs="1234; 0; -56; 90909",
)
def digit_sum(n: int) -> int:
    return sum(int(digit) for digit in str(abs(n)))


@reference(
    "repeated_digit_sum single_digit reduce_digits",
    "sum the digits of a non-negative number again and again until one digit is left",
    "compute the digital root of a number by repeatedly adding its digits",
    inputs="38; 0; 99999; 7",
)
def digital_root(n: int) -> int:
    while n > 9:
        n = sum(int(digit) for digit in str(n))
    return n


@reference(
    "count_set_bits ones_in_binary bit_count",
    "count the ones in the binary representation of a non-negative integer",
    "return how many bits of a number are set",
    inputs="13; 0; 255; 1024",
)
def count_ones(n: int) -> int:
    return bin(n).count("1")


@reference(
    "divisors all_divisors get_divisors",
    "list all positive divisors of a positive integer in ascending order",
    "return every number that divides n without a remainder, from 1 to n itself",
    inputs="12; 1; 13; 36",
)
def list_divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


@reference(
    "is_perfect perfect check_perfect",
    "tell whether a positive number equals the sum of its divisors smaller than itself",
    "check whether a number is perfect, like 6 = 1 + 2 + 3",
    inputs="6; 28; 12; 1",
)
def is_perfect_number(n: int) -> bool:
    return n > 1 and sum(d for d in range(1, n) if n % d == 0) == n


@reference(
    "collatz collatz_sequence hailstone",
    "return the Collatz sequence that starts with the given positive number and ends with 1",
    "list the numbers reached from n by halving even ones and mapping odd ones to 3n + 1",
    inputs="6; 1; 7; 8",
)
def collatz_path(n: int) -> list[int]:
    path = [n]
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        path.append(n)
    return path


@reference(
    "steps_to_one collatz_length count_collatz_steps",
    "count how many Collatz steps it takes to get from a positive number to 1",
    "return the number of steps until 1 if even numbers are halved and odd ones become 3n + 1",
    inputs="6; 1; 27; 16",
)
def collatz_steps(n: int) -> int:
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@reference(
    "least_common_multiple common_multiple smallest_common_multiple",
    "compute the least common multiple of two positive integers",
    "find the smallest positive number that both arguments divide",
    inputs="4, 6; 5, 7; 8, 8; 12, 18",
)
def lcm(a: int, b: int) -> int:
    return a * b // math.gcd(a, b)


@reference(
    "from_roman roman_value parse_roman",
    "convert a Roman numeral to an integer",
    "return the value of a number written in Roman digits",
    inputs="'XIV'; 'MCMXCIX'; 'III'; 'CDXLIV'",
)
def roman_to_int(text: str) -> int:
    values = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
    total = 0
    for index, letter in enumerate(text):
        value = values[letter]
        smaller = index + 1 < len(text) and value < values[text[index + 1]]
        total += -value if smaller else value
    return total


@reference(
    "is_armstrong narcissistic armstrong_number",
    "check whether a number equals the sum of its digits, each raised to the number of digits",
    "tell whether a positive integer is an Armstrong number, such as 153 = 1 + 125 + 27",
    inputs="153; 154; 9; 9474",
)
def is_narcissistic(n: int) -> bool:
    digits = [int(digit) for digit in str(n)]
    return sum(math.prod([digit] * len(digits)) for digit in digits) == n


@reference(
    "reverse_number flip_digits mirror_number",
    "reverse the digits of an integer and keep its sign",
    "return the number that is written with the digits in the opposite order",
    inputs="123; -450; 0; 9001",
)
def reverse_digits(n: int) -> int:
    reverse = int(str(abs(n))[::-1])
    return -reverse if n < 0 else reverse


@reference(
    "trailing_zeros factorial_zeros zeros_at_end",
    "count the zeros at the end of the factorial of n without computing the factorial",
    "return with how many zeros n! ends",
    inputs="5; 4; 25; 100",
)
def count_trailing_zeros(n: int) -> int:
    zeros = 0
    while n:
        n //= 5
        zeros += n
    return zeros


@reference(
    "clip limit_to_range constrain",
    "limit a number to the range from low to high",
    "return the value itself, or the nearer bound if it is outside of the interval",
    inputs="5, 0, 10; -3, 0, 10; 12.5, 0, 10; 7, 7, 7",
)
def clamp(value: float, low: float, high: float) -> float:
    return max(low, min(value, high))


@reference(
    "euclidean_distance point_distance distance_between",
    "compute the distance between two points in the plane, rounded to three decimals",
    "return how far apart two (x, y) points are; round to 3 digits",
    inputs="(0, 0), (3, 4); (1, 1), (1, 1); (-2, 5), (4, -3); (0.5, 0), (2, 2)",
)
def distance(p: tuple[float, float], q: tuple[float, float]) -> float:
    return round(math.hypot(p[0] - q[0], p[1] - q[1]), 3)


@reference(
    "to_fahrenheit celsius_to_f c_to_f",
    "convert a temperature from degrees Celsius to Fahrenheit, rounded to one decimal",
    "turn Celsius into Fahrenheit and round to 1 digit after the point",
    inputs="100; 0; -40; 36.6",
)
def celsius_to_fahrenheit(celsius: float) -> float:
    return round(celsius * 9 / 5 + 32, 1)


@reference(
    "grow_savings future_value balance_after",
    "return the balance after some years of yearly compound interest, rounded to cents",
    "compute what an amount grows to at the given percentage per year, with compound interest",
    inputs="1000, 5, 2; 250, 0, 10; 1200, 3.5, 1; 100, 10, 7",
)
def compound_interest(amount: float, percent: float, years: int) -> float:
    return round(amount * (1 + percent / 100) ** years, 2)


@reference(
    "coin_change fewest_coins min_coins",
    "return the smallest number of coins that add up to the amount, or -1 if it is impossible",
    "find how few coins are needed to pay an amount exactly; each coin may be used repeatedly",
    inputs="[1, 2, 5], 11; [4], 6; [1, 3, 4], 6; [2, 5], 0",
)
def minimum_coins(coins: list[int], amount: int) -> int:
    best = [0] + [amount + 1] * amount
    for value in range(1, amount + 1):
        for coin in coins:
            if coin <= value:
                best[value] = min(best[value], best[value - coin] + 1)
    return best[amount] if best[amount] <= amount else -1


@reference(
    "ways_to_climb stair_ways count_stair_paths",
    "count the ways to climb n stairs if you take one or two stairs at a time",
    "return the number of ordered sums of ones and twos that give n",
    inputs="1; 3; 5; 10",
)
def climb_stairs(n: int) -> int:
    ways, following = 1, 1
    for _ in range(n):
        ways, following = following, ways + following
    return ways


@reference(
    "pascal_row binomial_row nth_pascal_row",
    "return row n of Pascal's triangle, where row 0 is [1]",
    "compute the binomial coefficients of n as a list",
    inputs="0; 1; 4; 6",
)
def pascals_row(n: int) -> list[int]:
    row = [1]
    for _ in range(n):
        row = [1, *[a + b for a, b in pairwise(row)], 1]
    return row


@reference(
    "integer_sqrt floor_sqrt isqrt",
    "return the largest integer whose square is not greater than n, using binary search",
    "compute the integer part of a square root without floating point numbers",
    inputs="16; 17; 0; 99",
)
def integer_root(n: int) -> int:
    low, high = 0, n
    while low < high:
        middle = (low + high + 1) // 2
        if middle * middle <= n:
            low = middle
        else:
            high = middle - 1
    return low


@reference(
    "fast_power power exponentiate",
    "compute base to the power of a non-negative exponent by repeated squaring",
    "raise a number to an integer power with a logarithmic number of multiplications",
    inputs="2, 10; 5, 0; 3, 5; -2, 3",
)
def quick_power(base: int, exponent: int) -> int:
    result = 1
    while exponent:
        if exponent % 2:
            result *= base
        base *= base
        exponent //= 2
    return result


@reference(
    "is_happy happy check_happy",
    "check whether repeatedly summing the squares of the digits of a number leads to 1",
    "tell whether a positive number is happy, that is, reaches 1 by adding squares of digits",
    inputs="19; 2; 1; 7",
)
def is_happy_number(n: int) -> bool:
    seen: list[int] = []
    while n != 1 and n not in seen:
        seen.append(n)
        n = sum(int(digit) ** 2 for digit in str(n))
    return n == 1


@reference(
    "luhn_valid check_luhn valid_card",
    "check a string of digits with the Luhn algorithm",
    "tell whether a card number passes the Luhn test: double every second digit from the right",
    inputs="'79927398713'; '1234'; '0'; '4539578763621486'",
)
def passes_luhn(text: str) -> bool:
    total = 0
    for index, letter in enumerate(reversed(text)):
        digit = int(letter) * (2 if index % 2 else 1)
        total += digit - 9 if digit > 9 else digit
    return total % 10 == 0


@reference(
    "triangle_type classify_triangle kind_of_triangle",
    "classify a triangle by its sides as equilateral, isosceles, scalene or impossible",
    "return what kind of triangle three side lengths form; 'impossible' if they form none",
    inputs="3, 3, 3; 3, 4, 5; 2, 2, 3; 1, 2, 8",
)
def triangle_kind(a: int, b: int, c: int) -> str:
    x, y, z = sorted([a, b, c])
    if x + y <= z:
        return "impossible"
    return {1: "equilateral", 2: "isosceles", 3: "scalene"}[len({x, y, z})]


@reference(
    "ordinal with_suffix number_suffix",
    "write a positive integer as an English ordinal such as 1st, 2nd, 3rd, 4th or 11th",
    "append the right one of st, nd, rd and th to a number",
    inputs="1; 12; 23; 111",
)
def to_ordinal(n: int) -> str:
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


@reference(
    "make_change give_change greedy_change",
    "split an amount of cents into as few coins of 50, 20, 10, 5, 2 and 1 as possible",
    "return a dictionary from coin to count for the change of an amount, leaving out zero counts",
    inputs="88; 3; 50; 199",
)
def change(cents: int) -> dict[int, int]:
    coins: dict[int, int] = {}
    for coin in (50, 20, 10, 5, 2, 1):
        if cents >= coin:
            coins[coin], cents = divmod(cents, coin)
    return coins


@reference(
    "is_kaprekar kaprekar check_split_square",
    "check whether the square of a number can be cut into two parts that add up to the number",
    "tell whether a positive integer is a Kaprekar number, like 45, since 2025 gives 20 + 25",
    inputs="45; 9; 10; 297",
)
def is_kaprekar_number(n: int) -> bool:
    square = str(n * n)
    cuts = [(square[:i] or "0", square[i:]) for i in range(len(square))]
    return any(int(b) > 0 and int(a) + int(b) == n for a, b in cuts)


@reference(
    "gray gray_code to_gray",
    "return the Gray codes of the given number of bits as binary strings, starting with zeros",
    "list all n-bit Gray codes in order, so that neighbours differ in one bit",
    inputs="1; 2; 3",
)
def gray_codes(bits: int) -> list[str]:
    return [format(i ^ (i >> 1), f"0{bits}b") for i in range(2**bits)]
