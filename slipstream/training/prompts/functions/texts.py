"""More functions over strings: codes, formats, words."""

import re
from collections import Counter
from itertools import pairwise

from slipstream.training.prompts.functions import reference


@reference(
    "edit_distance levenshtein distance_of_words",
    "compute the edit distance of two words: insertions, deletions and replacements count one",
    "return the smallest number of single-letter changes that turn one string into another",
    inputs="'kitten', 'sitting'; '', 'abc'; 'same', 'same'; 'flaw', 'lawn'",
)
def edits(first: str, second: str) -> int:
    previous = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        current = [i]
        for j, b in enumerate(second, 1):
            current.append(min(previous[j] + 1, current[-1] + 1, previous[j - 1] + (a != b)))
        previous = current
    return previous[-1]


@reference(
    "lcs longest_common_subsequence shared_subsequence",
    "return the length of the longest common subsequence of two strings",
    "find how many letters two words share in the same order, with gaps allowed",
    inputs="'abcde', 'ace'; 'abc', 'xyz'; '', 'a'; 'stone', 'longest'",
)
def lcs_length(first: str, second: str) -> int:
    row = [0] * (len(second) + 1)
    for a in first:
        last = list(row)
        for j, b in enumerate(second, 1):
            row[j] = last[j - 1] + 1 if a == b else max(last[j], row[j - 1])
    return row[-1]


@reference(
    "longest_palindrome largest_palindrome find_palindrome",
    "return the longest palindromic part of a string; of equally long ones the first",
    "find the longest substring that reads the same in both directions",
    inputs="'babad'; 'cbbd'; ''; 'racecars'",
)
def longest_palindromic(text: str) -> str:
    parts = (text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1))
    return max((part for part in parts if part == part[::-1]), key=len, default="")


@reference(
    "morse to_morse encode_morse",
    "translate the letters s, o, e, t, a and n of a word to Morse code, separated by spaces",
    "write a word that uses only the letters a, e, n, o, s and t in Morse code",
    inputs="'sos'; 'note'; 'a'; 'season'",
)
def morse_code(word: str) -> str:
    codes = {"s": "...", "o": "---", "e": ".", "t": "-", "a": ".-", "n": "-."}
    return " ".join(codes[letter] for letter in word)


@reference(
    "atbash mirror_alphabet atbash_cipher",
    "replace each lower-case letter by its mirror in the alphabet: a by z, b by y and so on",
    "encode a text with the Atbash cipher; other signs stay as they are",
    inputs="'abc'; 'wizard'; 'hello, world'; ''",
)
def atbash_encode(text: str) -> str:
    return "".join(chr(219 - ord(c)) if "a" <= c <= "z" else c for c in text)


@reference(
    "vigenere encrypt_vigenere keyword_cipher",
    "encrypt lower-case letters with the Vigenère cipher and a keyword",
    "shift each letter of a lower-case text by the matching letter of a repeated key",
    inputs="'attack', 'lemon'; 'abc', 'b'; '', 'key'; 'zzz', 'ab'",
)
def vigenere_encrypt(text: str, key: str) -> str:
    shifts = [ord(letter) - ord("a") for letter in key]
    return "".join(
        chr((ord(c) - ord("a") + shifts[i % len(shifts)]) % 26 + ord("a"))
        for i, c in enumerate(text)
    )


@reference(
    "decode_runs expand_rle run_length_decode",
    "decode a run-length encoded string in which each letter is followed by its count",
    "expand a string like 'a2b1' to 'aab'",
    inputs="'a3b1c2'; ''; 'x10'; 'z1y1'",
)
def expand_runs(text: str) -> str:
    return "".join(letter * int(count) for letter, count in re.findall(r"(\D)(\d+)", text))


@reference(
    "number_lines with_line_numbers add_line_numbers",
    "put a number, a colon and a space before every line of a text, counting from 1",
    "number the lines of a string",
    inputs="'a\\nb'; 'one line'; 'x\\n\\ny'",
)
def numbered(text: str) -> str:
    return "\n".join(f"{i}: {line}" for i, line in enumerate(text.split("\n"), 1))


@reference(
    "squeeze collapse_spaces normalize_spaces",
    "remove spaces at both ends of a string and replace runs of spaces by a single one",
    "tidy up the spaces of a text",
    inputs="'  too   many  spaces '; ''; 'fine'; '   '",
)
def clean_spaces(text: str) -> str:
    return " ".join(text.split())


@reference(
    "has_unique_letters all_unique no_repeats",
    "check whether no character occurs twice in a string",
    "tell whether all characters of a text are different",
    inputs="'world'; 'hello'; ''; 'Aa'",
)
def is_isogram(text: str) -> bool:
    return len(set(text)) == len(text)


@reference(
    "is_pangram uses_all_letters pangram",
    "check whether a sentence contains every letter of the English alphabet, ignoring case",
    "tell whether a text is a pangram",
    inputs="'Pack my box with five dozen liquor jugs'; 'Hello'; ''",
)
def contains_alphabet(text: str) -> bool:
    return set("abcdefghijklmnopqrstuvwxyz") <= set(text.lower())


@reference(
    "is_rotation rotated_string string_rotation",
    "check whether one string can be made from another by moving letters from front to end",
    "tell whether two strings are rotations of each other",
    inputs="'waterbottle', 'bottlewater'; 'abc', 'acb'; '', ''; 'aab', 'aba'",
)
def are_rotations(first: str, second: str) -> bool:
    return len(first) == len(second) and second in first + first


@reference(
    "acronym make_acronym abbreviation",
    "build an acronym from the first letters of the words of a phrase, in upper case",
    "return the initial letters of all words, joined and capitalised; hyphens separate words too",
    inputs="'portable network graphics'; 'read-only memory'; 'one'; ''",
)
def to_acronym(phrase: str) -> str:
    return "".join(word[0].upper() for word in re.split(r"[ -]", phrase) if word)


@reference(
    "most_common_letter top_letter frequent_letter",
    "return the letter that occurs most often in a text, ignoring case; the first in the alphabet "
    "if several do",
    "find the most frequent letter of a string with at least one letter",
    inputs="'Mississippi'; 'Abba'; 'z'; 'the tea'",
)
def commonest_letter(text: str) -> str:
    counts = Counter(c for c in text.lower() if c.isalpha())
    return min(counts, key=lambda letter: (-counts[letter], letter))


@reference(
    "ip_valid is_ipv4 check_ip",
    "check whether a string is an IPv4 address: four numbers from 0 to 255 without leading zeros",
    "validate an IPv4 address",
    inputs="'192.168.0.1'; '256.1.1.1'; '1.2.3'; '01.2.3.4'",
)
def valid_ip(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == 4 and all(
        part.isdigit() and int(part) < 256 and str(int(part)) == part for part in parts
    )


@reference(
    "hex_to_rgb parse_color read_hex_colour",
    "convert a colour such as '#ff8800' to a tuple of red, green and blue",
    "return the three components, 0 to 255, of a hexadecimal colour",
    inputs="'#ff8800'; '#000000'; '#7fFF00'",
)
def rgb(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


@reference(
    "rgb_to_hex color_code hex_colour",
    "write red, green and blue values from 0 to 255 as a colour such as '#0a64ff'",
    "convert three colour components to a hexadecimal string in lower case",
    inputs="255, 136, 0; 0, 0, 0; 10, 100, 255",
)
def to_hex(red: int, green: int, blue: int) -> str:
    return f"#{red:02x}{green:02x}{blue:02x}"


@reference(
    "group_digits thousands format_number",
    "write an integer with a comma between groups of three digits",
    "format a whole number with thousands separators, without using format codes",
    inputs="1234567; 12; -9876; 1000",
)
def with_commas(n: int) -> str:
    digits, groups = str(abs(n)), []
    while digits:
        groups.append(digits[-3:])
        digits = digits[:-3]
    return "-" * (n < 0) + ",".join(reversed(groups))


@reference(
    "evaluate calculate eval_rpn",
    "evaluate an expression in reverse Polish notation with the operators + - *",
    "compute the value of a postfix expression whose tokens are separated by spaces",
    inputs="'3 4 +'; '5 1 2 + 4 * + 3 -'; '7'; '2 3 * 4 *'",
)
def rpn(expression: str) -> int:
    stack: list[int] = []
    for token in expression.split():
        if token in "+-*":
            b, a = stack.pop(), stack.pop()
            stack.append({"+": a + b, "-": a - b, "*": a * b}[token])
        else:
            stack.append(int(token))
    return stack[0]


@reference(
    "zigzag alternate_case mocking_case",
    "write a text in alternating case, beginning with a capital; only letters count",
    "make every other letter upper case, starting with the first letter",
    inputs="'hello world'; 'a'; ''; 'it is me'",
)
def alternating(text: str) -> str:
    result, upper = "", True
    for c in text:
        result += c.upper() if upper else c.lower()
        upper ^= c.isalpha()
    return result


@reference(
    "parse_csv_line split_csv read_row",
    "split a line of comma-separated values in which fields may stand in double quotes",
    "parse one CSV line; a comma inside of quotes does not separate, and quotes are dropped",
    inputs="'a,b,c'; 'x,\"y, z\",w'; ''; ',,'",
)
def csv_fields(line: str) -> list[str]:
    fields, quoted = [""], False
    for sign in line:
        if sign == '"':
            quoted = not quoted
        elif sign == "," and not quoted:
            fields.append("")
        else:
            fields[-1] += sign
    return fields


@reference(
    "template render substitute",
    "replace each <name> in a text by the value of that name in a dictionary",
    "fill in a template whose slots are names in angle brackets",
    inputs="'Hi <who>, <what>!', {'who': 'Eva', 'what': 'hey'}; 'plain', {}; '<a><a>', {'a': 'x'}",
)
def fill_template(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"<{name}>", value)
    return text


@reference(
    "file_extension extension get_suffix",
    "return the extension of a file name in lower case and without the dot, '' if it has none",
    "find out the type of a file from its name; names that begin with a dot have no extension",
    inputs="'photo.JPG'; 'archive.tar.gz'; 'README'; '.bashrc'",
)
def suffix(name: str) -> str:
    stem, dot, ending = name.rpartition(".")
    return ending.lower() if dot and stem else ""


@reference(
    "simplify_path normalize_path clean_path",
    "simplify an absolute Unix path: resolve '.' and '..' and repeated slashes",
    "return the shortest path that leads to the same place; '..' at the root stays there",
    inputs="'/a/./b/../c/'; '/../'; '/home//user'; '/x/y/../..'",
)
def canonical_path(path: str) -> str:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


@reference(
    "compare_versions version_compare newer_version",
    "compare two version numbers such as '1.10' and '1.9': return -1, 0 or 1",
    "tell which version is newer: 1 if the first is, -1 if the second is, 0 if they are equal",
    inputs="'1.10', '1.9'; '2.0', '2'; '1.0.1', '1.1'; '3.4.5', '3.4.5'",
)
def version_order(first: str, second: str) -> int:
    a, b = ([int(part) for part in version.split(".")] for version in (first, second))
    length = max(len(a), len(b))
    a, b = a + [0] * (length - len(a)), b + [0] * (length - len(b))
    return (a > b) - (a < b)


@reference(
    "phone_number format_phone pretty_phone",
    "format ten digits as a telephone number such as '(555) 123-4567'; ignore all other signs",
    "bring a phone number with ten digits into the form (AAA) BBB-CCCC",
    inputs="'5551234567'; '555 987 6543'; '(212)555-0100'",
)
def formatted_phone(text: str) -> str:
    digits = re.sub(r"\D", "", text)
    return f"({digits[:3]}) {digits[3:6]}-{digits[6:]}"


@reference(
    "unique_emails normalize_email canonical_email",
    "normalise an e-mail address: lower case, without dots and anything after + before the @",
    "remove dots and a plus suffix from the local part of an e-mail address",
    inputs="'Jo.Doe+news@Mail.com'; 'a@b.org'; 'x.y.z@host.net'",
)
def clean_email(address: str) -> str:
    local, _, domain = address.lower().partition("@")
    return local.partition("+")[0].replace(".", "") + "@" + domain


@reference(
    "bulls_and_cows score_guess mastermind",
    "score a guess of equal length: count right digits in the right place, then in wrong places",
    "return (bulls, cows) for a secret number and a guess, both strings of digits",
    inputs="'1234', '1243'; '1111', '2222'; '987', '789'; '1122', '2211'",
)
def compare_guess(secret: str, guess: str) -> tuple[int, int]:
    bulls = sum(a == b for a, b in zip(secret, guess, strict=True))
    common = (Counter(secret) & Counter(guess)).total()
    return bulls, common - bulls


@reference(
    "count_words_ending words_with_suffix count_suffix",
    "count the words of a text that end with the given letters, ignoring case",
    "return how many words of a sentence have a certain ending",
    inputs="'Singing and dancing in spring', 'ing'; '', 'a'; 'one two', 'x'",
)
def endings(text: str, ending: str) -> int:
    return sum(word.endswith(ending.lower()) for word in text.lower().split())


@reference(
    "ladder_step one_letter_apart is_neighbour_word",
    "check whether two words of equal length differ in exactly one letter",
    "tell whether one word becomes the other by replacing a single letter",
    inputs="'cat', 'cot'; 'cat', 'dog'; 'same', 'same'; 'lead', 'load'",
)
def adjacent_words(first: str, second: str) -> bool:
    return (
        len(first) == len(second) and sum(a != b for a, b in zip(first, second, strict=True)) == 1
    )


@reference(
    "alphabetical letters_in_order is_sorted_word",
    "check whether the letters of a word are in alphabetical order",
    "tell whether no letter of a lower-case word comes after a later one in the alphabet",
    inputs="'almost'; 'zebra'; ''; 'billowy'",
)
def letters_sorted(word: str) -> bool:
    return all(a <= b for a, b in pairwise(word))
