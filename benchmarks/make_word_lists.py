"""Make the word lists that ship with the package (src/dpvb/data/documents/words), the same bytes at each run.

Needs wordfreq 3.1.1, which is in no extra of dpvb: `pip install wordfreq==3.1.1`. Each list holds the 10,000 most
frequent words of a language that are letters alone, in lower case, and no stop words, each with its share of all words.

wordfreq writes German ß as ss. Where the spelling of today has ß, the list holds the word in both spellings.
"""

from __future__ import annotations

import gzip
import re
from importlib.metadata import version
from pathlib import Path

from wordfreq import get_frequency_dict

from dpvb.data.documents.word_lists import stop_words

WORDS = 10_000
CODES = {"english": "en", "french": "fr", "german": "de", "spanish": "es"}
#: Parts of German words with ß.
LONG = (
    "ausmaß außen außer beiß besaß bloß büß dreißig ermaßen fleiß fuß füß gieß groß größ gruß grüß heiß hieß ließ "
    "maßgeb maßnahm maßst mäß nieß preuß reiß schieß schmeiß schweiß soße spaß stieß stoß stöß straß strauß süß vergaß "
    "weiß äußer"
)
PART = re.compile("|".join(part.replace("ß", "ss") for part in LONG.split()))


def spelled(word: str) -> str:
    """A German word as it is spelled today."""
    return PART.sub(lambda part: part[0].replace("ss", "ß"), word)


def main() -> None:
    if version("wordfreq") != "3.1.1":
        raise SystemExit("the lists are those of wordfreq 3.1.1")
    folder = Path(__file__).parents[1] / "src" / "dpvb" / "data" / "documents" / "words"
    for language, code in CODES.items():
        letters = re.compile("[a-z]{2,}" if language == "english" else r"[^\W\d_]{2,}")
        share = {word: f for word, f in get_frequency_dict(code, "large").items() if letters.fullmatch(word)}
        if language == "german":
            share |= {spelled(word): f for word, f in share.items()}
        left_out = {form for word in stop_words(language) for form in (word, word.replace("ß", "ss"))}
        known = sorted((-f, word) for word, f in share.items() if word not in left_out)[:WORDS]
        text = "".join(f"{word} {-f:.2e}\n" for f, word in known)
        (folder / f"{language}.txt.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
