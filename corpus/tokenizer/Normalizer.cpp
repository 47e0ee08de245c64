#include "corpus/tokenizer/Normalizer.h"

#include "corpus/tokenizer/unicode/Charsmap.h"
#include "corpus/tokenizer/unicode/Utf8.h"

namespace lmc {

namespace {

// Returns a normalizer that replaces each character c by the text that append(text, c) appends.
template <typename Append> Normalizer perCharacter(Append append) {
  return [append](std::string &text, bool &cutBegin) -> Result<void> {
    std::string result;
    result.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const bool first = at == 0;
      append(result, readUtf8(text, at));
      cutBegin |= first && result.empty();
    }
    text = std::move(result);
    return {};
  };
}

} // namespace

Normalizer makeNormalForm(NormalForm form) {
  return [form](std::string &text, bool &) -> Result<void> {
    text = normalForm(text, form);
    return {};
  };
}

Normalizer makeLowercase() { return perCharacter(appendLowercase); }

Normalizer makeStripAccents() {
  return perCharacter([](std::string &text, char32_t c) {
    if (!markCharacters().contains(c))
      appendUtf8(text, c);
  });
}

Normalizer makeStrip(bool left, bool right) {
  return [=](std::string &text, bool &cutBegin) -> Result<void> {
    size_t begin = 0, end = text.size();
    for (size_t at = 0; left && at < end && isSpace(readUtf8(text, at));)
      begin = at;
    if (right)
      end = spaceBegin(text, begin, end);
    cutBegin |= begin > 0;
    text = text.substr(begin, end - begin);
    return {};
  };
}

Normalizer makePrepend(std::string prefix) {
  return [prefix = std::move(prefix)](std::string &text, bool &) -> Result<void> {
    if (!text.empty())
      text.insert(0, prefix);
    return {};
  };
}

Normalizer makeReplace(Matcher matcher, std::string content) {
  return [matcher = std::move(matcher),
          content = std::move(content)](std::string &text, bool &cutBegin) -> Result<void> {
    std::vector<Span> spans;
    LMC_TRY(matcher(text, spans));
    std::string result;
    result.reserve(text.size());
    for (const Span &span : spans) {
      const std::string_view piece(text.data() + span.begin, span.end - span.begin);
      if (span.match && span.begin == 0)
        cutBegin |= content.empty() || utf8Length(piece[0]) < piece.size();
      result += span.match ? std::string_view(content) : piece;
    }
    text = std::move(result);
    return {};
  };
}

// Changes the same characters as Nmt of `tokenizers` and nmt_nfkc of SentencePiece.
Normalizer makeNmt() {
  return perCharacter([](std::string &text, char32_t c) {
    const bool removed = (c >= 0x01 && c <= 0x08) || c == 0x0b || (c >= 0x0e && c <= 0x1f) ||
                         c == 0x7f || c == 0x8f || c == 0x9f;
    const bool space = c == 0x09 || c == 0x0a || c == 0x0c || c == 0x0d || c == 0x1680 ||
                       (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xfeff || c == 0xfffd;
    if (!removed)
      appendUtf8(text, space ? U' ' : c);
  });
}

// As in `tokenizers`, replaces a grapheme cluster of less than 6 bytes by the table's entry for the
// shortest prefix of the cluster. Replaces each character of other clusters in this way.
Result<Normalizer> makePrecompiled(std::string_view charsmap) {
  LMC_LET(map, Charsmap::parse(charsmap));
  return Normalizer([map = std::move(*map)](std::string &text, bool &) -> Result<void> {
    std::string result;
    result.reserve(text.size());
    const std::string_view view = text;
    for (size_t at = 0, end; at < view.size(); at = end) {
      end = clusterEnd(view, at);
      const std::string_view cluster = view.substr(at, end - at);
      if (auto match = cluster.size() < 6 ? map.shortest(cluster) : std::nullopt) {
        result += match->replacement;
        continue;
      }
      for (size_t i = 0; i < cluster.size(); i += utf8Length(cluster[i])) {
        const std::string_view character = cluster.substr(i, utf8Length(cluster[i]));
        auto match = map.shortest(character);
        result += match ? match->replacement : character;
      }
    }
    text = std::move(result);
    return {};
  });
}

} // namespace lmc
