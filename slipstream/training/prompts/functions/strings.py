"""Functions over strings."""

import re
from collections import Counter

from slipstream.training.prompts.functions import reference


@reference(
    "reverse_each_word flip_words mirror_words",
    "reverse the letters of every word in a sentence but keep the order of the words",
    "return the sentence with each of its words spelled backwards",
    inputs="'hello big world'; ''; 'level up'; 'one'",
)
def reverse_words(text: str) -> str:
    return " ".join(word[::-1] for word in text.split(" "))


@reference(
    "camel_to_snake to_snake_case snakify",
    "convert a camelCase name to snake_case",
    "turn an identifier such as myVariableName into lower case with underscores",
    inputs="'maxRetryCount'; 'name'; 'parseHttpBody'; 'isA'",
)
def snake_case(name: str) -> str:
    return re.sub(r"([A-Z])", r"_\1", name).lower().lstrip("_")


@reference(
    "snake_to_camel to_camel_case camelize",
    "convert a snake_case name to camelCase",
    "turn an identifier with underscores into camel case, beginning with a lower case letter",
    inputs="'max_retry_count'; 'name'; 'is_a_b'; 'user_id'",
)
def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@reference(
    "caesar_cipher shift_letters caesar_encrypt",
    "encrypt a text by shifting each letter k places in the alphabet, leaving other signs alone",
    "apply a Caesar cipher with the given shift; case is kept, non-letters do not change",
    inputs="'abc xyz', 3; 'Hello!', 13; '', 5; 'Zebra', 1",
)
def caesar(text: str, k: int) -> str:
    shifted = []
    for letter in text:
        if letter.isalpha():
            base = ord("a") if letter.islower() else ord("A")
            letter = chr((ord(letter) - base + k) % 26 + base)
        shifted.append(letter)
    return "".join(shifted)


@reference(
    "compress rle_encode squeeze_runs",
    "compress a string by writing each run of equal letters as the letter and its count",
    "run-length encode a string, so that 'aab' becomes 'a2b1'",
    inputs="'aaabcc'; ''; 'xyz'; 'zzzzzzzzzz'",
)
def run_length(text: str) -> str:
    return "".join(f"{run[0][0]}{len(run[0])}" for run in re.finditer(r"(.)\1*", text))


@reference(
    "shorten ellipsize truncate_text",
    "shorten a text to at most the given number of characters, ending in '...' if it was cut",
    "cut a string down to `width` characters, the last three being dots when something was removed",
    inputs="'a long sentence', 9; 'short', 10; 'exactly', 7; 'internationalization', 12",
)
def truncate(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


@reference(
    "initials make_initials abbreviate",
    "return the initials of a full name in upper case, each followed by a dot",
    "build the initials of a person's name, like 'A.B.' for 'anna bell'",
    inputs="'ada lovelace'; 'grace brewster hopper'; 'Plato'; ''",
)
def get_initials(name: str) -> str:
    return "".join(part[0].upper() + "." for part in name.split())


@reference(
    "first_unique_letter first_single_char non_repeating",
    "return the first character that occurs only once in a string, or None",
    "find the first non-repeating character of a text; None if every character repeats",
    inputs="'swiss'; 'aabb'; ''; 'level'",
)
def first_unique(text: str) -> str | None:
    counts = Counter(text)
    return next((letter for letter in text if counts[letter] == 1), None)


@reference(
    "word_frequencies count_words word_histogram",
    "count how often each word occurs in a text, ignoring case",
    "return a dictionary from each lower-cased word of a sentence to its number of occurrences",
    inputs="'the cat and the hat'; ''; 'Red red RED blue'; 'one two'",
)
def word_counts(text: str) -> dict[str, int]:
    return dict(Counter(text.lower().split()))


@reference(
    "balanced brackets_match is_balanced",
    "check whether the brackets (), [] and {} in a text are balanced and properly nested",
    "return True if every bracket of the string is closed by the right one in the right order",
    inputs="'(a[b]{c})'; '(]'; ''; '((x)'",
)
def balanced_brackets(text: str) -> bool:
    closing = {")": "(", "]": "[", "}": "{"}
    stack: list[str] = []
    for sign in text:
        if sign in "([{":
            stack.append(sign)
        elif sign in closing and (not stack or stack.pop() != closing[sign]):
            return False
    return not stack


@reference(
    "slugify make_slug url_slug",
    "turn a title into a URL slug: lower case, words joined by hyphens, other signs removed",
    "make a slug from a heading, so that 'My Post!' becomes 'my-post'",
    inputs="'Hello, World!'; '  Ten Tips for 2024 '; 'C++ & Rust'; 'already-a-slug'",
)
def slug(title: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))


@reference(
    "hide_digits mask_number mask_card",
    "replace all but the last four characters of a string by asterisks",
    "mask a card number so that only its last 4 digits stay readable",
    inputs="'1234567890'; '123'; '5500-0000-1234'; ''",
)
def mask(text: str) -> str:
    return "*" * max(0, len(text) - 4) + text[-4:]


@reference(
    "common_prefix longest_common_prefix shared_start",
    "return the longest prefix that all strings of a list share",
    "find the common beginning of several words; '' if there is none",
    inputs="['flower', 'flow', 'flight']; ['dog', 'car']; ['same', 'same']; []",
)
def prefix_of_all(words: list[str]) -> str:
    prefix = words[0] if words else ""
    while not all(word.startswith(prefix) for word in words):
        prefix = prefix[:-1]
    return prefix


@reference(
    "pig_latin to_pig_latin pigify",
    "translate a lower-case word to Pig Latin: move leading consonants to the end and add 'ay'; "
    "words that begin with a vowel get 'way'",
    inputs="'banana'; 'apple'; 'string'; 'smile'",
)
def pig_latin_word(word: str) -> str:
    if word[0] in "aeiou":
        return word + "way"
    start = next((i for i, letter in enumerate(word) if letter in "aeiou"), len(word))
    return word[start:] + word[:start] + "ay"


@reference(
    "extract_numbers find_numbers numbers_in",
    "return all whole numbers that occur in a text, as integers",
    "collect the integers written in a string, in order; a minus sign directly before one counts",
    inputs="'3 apples and 12 pears'; 'no digits'; 'from -5 to 10'; 'v2.10'",
)
def integers_in(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"-?\d+", text)]


@reference(
    "letter_positions char_indices index_letters",
    "map each letter of a word to the list of positions at which it occurs",
    "return a dictionary that gives for every character of a string all of its indices",
    inputs="'banana'; ''; 'abc'; 'noon'",
)
def positions(word: str) -> dict[str, list[int]]:
    result: dict[str, list[int]] = {}
    for index, letter in enumerate(word):
        result.setdefault(letter, []).append(index)
    return result


@reference(
    "hamming hamming_distance count_mismatches",
    "count the positions at which two strings of equal length differ; raise ValueError otherwise",
    "compute the Hamming distance of two equally long strings",
    inputs="'karolin', 'kathrin'; 'abc', 'abc'; '', ''; '10110', '11100'",
)
def string_distance(first: str, second: str) -> int:
    if len(first) != len(second):
        raise ValueError("the strings must be equally long")
    return sum(a != b for a, b in zip(first, second, strict=True))


@reference(
    "title_case capitalize_words headline",
    "capitalise every word of a title except 'and', 'of', 'the' and 'in', unless it comes first",
    "write a title with capital letters but leave the small words and, of, the, in in lower case",
    inputs="'the lord of the rings'; 'war and peace'; 'in the end'; 'once upon a time'",
)
def title(text: str) -> str:
    small = {"and", "of", "the", "in"}
    words = text.lower().split()
    return " ".join(w if i and w in small else w.capitalize() for i, w in enumerate(words))


@reference(
    "wrap_text word_wrap break_lines",
    "break a text into lines of at most `width` characters without splitting words",
    "wrap a paragraph at the given width and return the list of its lines",
    inputs="'the sun rises in the east', 10; '', 5; 'one two three', 20; 'a b c d e', 3",
)
def wrap(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


@reference(
    "binary_to_int parse_binary from_binary",
    "convert a string of binary digits to the number it stands for, without using int(text, 2)",
    "return the decimal value of a binary string",
    inputs="'1011'; '0'; '11111111'; '1000000'",
)
def binary_value(text: str) -> int:
    value = 0
    for digit in text:
        value = value * 2 + (digit == "1")
    return value


@reference(
    "is_valid_password strong_password check_password",
    "check that a password has at least 8 characters, a digit, an upper and a lower case letter",
    "tell whether a password is strong: 8 or more signs, both cases and at least one digit",
    inputs="'Secret123'; 'short1A'; 'alllowercase1'; 'NODIGITSHERE'",
)
def password_ok(text: str) -> bool:
    return (
        len(text) >= 8
        and any(c.isdigit() for c in text)
        and any(c.isupper() for c in text)
        and any(c.islower() for c in text)
    )
