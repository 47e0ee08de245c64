#!/bin/sh
# Writes the King James Bible of Debian's bible-kjv-text as plain text: one
# chapter per document, documents separated by form feeds. A chapter is a line
# with its name ("Ge 1"), then one verse a line.
#
# Usage: make-demo-text.sh OUT.txt [BIBLE.DATA]
#
# The package's file is a big-endian header followed by one compress(1) stream.
# The header: "EC02" at byte 0, and at byte 92 the place of the first block of
# data, which comes right after the 3 bytes of the stream's own magic. gzip
# reads such streams, so the package's text is enough; its reader isn't needed.
set -eu

fail() {
  echo "make-demo-text.sh: error: $*" >&2
  exit 2
}

[ $# -ge 1 ] && [ $# -le 2 ] || fail "usage: make-demo-text.sh OUT.txt [BIBLE.DATA]"
out=$1
data=${2:-/usr/lib/bible.data}
[ -r "$data" ] || fail "cannot read $data; install it with: apt-get install bible-kjv-text"
[ "$(head -c 4 "$data")" = EC02 ] || fail "$data is not the text of bible-kjv-text"
first=$(od -An -j92 -N4 --endian=big -tu4 "$data" | tr -d ' ')

partial=$out.partial
trap 'rm -f "$partial"' EXIT
trap 'exit 1' HUP INT TERM
# The first line is the edition's name. A verse is "Ge1:2 And the earth ...". The
# counts of chapters and verses are the canon's: a short read cannot pass them.
tail -c "+$((first - 2))" "$data" | gzip -dc | LC_ALL=C awk '
  NR == 1 { next }
  {
    split($1, place, ":")
    if (place[1] != chapter) {
      if (chapter != "")
        printf "\f"
      chapter = place[1]
      ++chapters
      name = number = chapter
      sub(/[0-9]+$/, "", name)
      number = substr(chapter, length(name) + 1)
      print name, number
      print ""
    }
    ++verses
    print substr($0, length($1) + 2)
  }
  END { exit !(chapters == 1189 && verses == 31102) }' > "$partial" ||
  fail "cannot make $out of $data: damaged file or full disk"
mv "$partial" "$out"
