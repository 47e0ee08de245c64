#include "tools/lmc-data/input/TextInput.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <vector>

using namespace std::string_view_literals;

namespace lmc {

namespace {

constexpr size_t kReadBytes = 1 << 18; // number of bytes of the file per read

// The first bytes of a format that users give in place of text by mistake.
struct Magic {
  size_t offset;
  std::string_view bytes;
  const char *format;
};
constexpr Magic kNotText[] = {
    {0, "PAR1"sv, "Parquet (which --format=parquet reads)"},
    {0, "PK\x03\x04"sv, "a ZIP archive"},
    {0, "BZh"sv, "compressed by bzip2"},
    {0, "\3757zXZ\0"sv, "compressed by xz"},
    {0, "\x04\x22\x4d\x18"sv, "compressed by lz4"},
    {0, "7z\xbc\xaf\x27\x1c"sv, "a 7-Zip archive"},
    {0, "%PDF"sv, "PDF"},
    {0, "\177ELF"sv, "a program"},
    {0, "SQLite format 3\x00"sv, "an SQLite database"},
    {0, "\x93NUMPY"sv, "a NumPy array"},
    {0, "ARROW1\x00"sv, "an Arrow file"},
    {0, "\xff\xff\xff\xff"sv, "an Arrow stream"},
    {0, "\x89HDF"sv, "HDF5"},
    {0, "\xff\xfe"sv, "UTF-16 text"},
    {0, "\xfe\xff"sv, "UTF-16 text"},
    {0, "LMCTOKEN"sv, "a token file already"},
    {257, "ustar"sv, "a tar archive"},
};

// If the file begins with the bytes of a format other than text, returns its name; else null.
const char *formatThatIsNoText(std::string_view begin) {
  for (const Magic &magic : kNotText)
    if (begin.size() >= magic.offset && begin.substr(magic.offset).starts_with(magic.bytes))
      return magic.format;
  return nullptr;
}

struct Decoder {
  virtual ~Decoder() = default;
  // Decodes bytes at the front of `from`, removes them there, and appends their text to `to`. If
  // the bytes are invalid, returns the reason; else "". An empty `from` means: the file ends here.
  virtual std::string decode(std::string_view &from, std::string &to) = 0;
  // Returns true if the file may end after the bytes decoded so far.
  virtual bool complete() const = 0;
};

struct Copy : Decoder {
  std::string decode(std::string_view &from, std::string &to) override {
    to.append(from);
    from = {};
    return "";
  }
  bool complete() const override { return true; }
};

// A gzip file may have several members, one after the other: `cat a.gz b.gz` has two.
class Gzip : public Decoder {
public:
  Gzip() { inflateInit2(&stream, 15 + 16); } // 15: maximum window; + 16: gzip header
  ~Gzip() override { inflateEnd(&stream); }

  std::string decode(std::string_view &from, std::string &to) override {
    if (ended) {
      inflateReset(&stream);
      ended = false;
    }
    char out[1 << 16];
    stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(from.data()));
    stream.avail_in = static_cast<uInt>(from.size());
    stream.next_out = reinterpret_cast<Bytef *>(out);
    stream.avail_out = sizeof(out);
    const int code = inflate(&stream, Z_NO_FLUSH);
    from.remove_prefix(from.size() - stream.avail_in);
    to.append(out, sizeof(out) - stream.avail_out);
    if (code == Z_STREAM_END)
      ended = true;
    else if (code != Z_OK && code != Z_BUF_ERROR)
      return stream.msg ? stream.msg : "not gzip";
    return "";
  }
  bool complete() const override { return ended; }

private:
  z_stream stream{};
  bool ended = false;
};

class Zstd : public Decoder {
public:
  Zstd() : stream(ZSTD_createDStream()) {
    // Files of `zstd --long=31` need a larger window than the library's default allows.
    ZSTD_DCtx_setParameter(stream, ZSTD_d_windowLogMax, 31);
  }
  ~Zstd() override { ZSTD_freeDStream(stream); }

  std::string decode(std::string_view &from, std::string &to) override {
    char out[1 << 16];
    ZSTD_inBuffer input{from.data(), from.size(), 0};
    ZSTD_outBuffer output{out, sizeof(out), 0};
    const size_t left = ZSTD_decompressStream(stream, &output, &input);
    if (ZSTD_isError(left))
      return ZSTD_getErrorName(left);
    from.remove_prefix(input.pos);
    to.append(out, output.pos);
    ended = left == 0;
    return "";
  }
  bool complete() const override { return ended; }

private:
  ZSTD_DStream *stream;
  bool ended = false;
};

} // namespace

std::string nameOfInput(const std::string &path) {
  return path == kStandardInput ? "standard input" : path;
}

struct TextInput::State {
  std::string name;
  Progress &progress;
  std::ifstream opened;
  std::istream &file;
  std::vector<char> raw;
  std::string_view rest = {}; // bytes of the file that are not decoded yet
  uint64_t bytes = 0;         // bytes of the file read so far, including `rest`
  std::unique_ptr<Decoder> decoder;
  std::string text;
  bool fresh = false; // true if `text` was not returned yet

  State(const std::string &path, Progress &progress)
      : name(nameOfInput(path)), progress(progress),
        file(path == kStandardInput ? std::cin : opened), raw(kReadBytes) {
    if (path != kStandardInput)
      opened.open(path, std::ios::binary);
  }

  bool isPlain() const { return dynamic_cast<Copy *>(decoder.get()) && &file == &opened; }

  Result<void> begin() {
    if (std::error_code ignored; std::filesystem::is_directory(name, ignored))
      return userError("{}: is a directory, expected a file", name);
    if (!file)
      return userError("{}: cannot open: {}", name, std::strerror(errno));
    LMC_TRY(readMore());
    if (rest.starts_with("\x1f\x8b"))
      decoder = std::make_unique<Gzip>();
    else if (rest.starts_with("\x28\xb5\x2f\xfd"))
      decoder = std::make_unique<Zstd>();
    else if (name.ends_with(".gz") || name.ends_with(".zst"))
      return userError("{}: byte 0: not compressed by {}, although its name says so; copy it "
                       "again, or rename it",
                       name, name.ends_with(".gz") ? "gzip" : "zstd");
    else
      decoder = std::make_unique<Copy>();
    LMC_TRY(fill());
    fresh = true;
    if (const char *format = formatThatIsNoText(text))
      return userError(
          "{}: is {}, expected text or JSON lines, as they are or compressed by gzip or zstd", name,
          format);
    return {};
  }

  Result<void> readMore() {
    errno = 0;
    file.read(raw.data(), static_cast<std::streamsize>(raw.size()));
    rest = {raw.data(), static_cast<size_t>(file.gcount())};
    bytes += rest.size();
    progress.advance(rest.size());
    // std::cin, which is on top of stdio, reports a failed read as the end of the file.
    if (file.bad() || (&file == &std::cin && std::ferror(stdin)))
      return machineError("{}: cannot read after byte {}: {}", name, bytes, std::strerror(errno));
    return {};
  }

  // Reads the next piece of text into `text`; leaves `text` empty at the end.
  Result<void> fill() {
    text.clear();
    while (text.empty()) {
      if (rest.empty())
        LMC_TRY(readMore());
      const bool atEnd = rest.empty();
      if (atEnd && decoder->complete())
        return {};
      const size_t before = rest.size();
      if (std::string why = decoder->decode(rest, text); !why.empty())
        return userError("{}: cannot be decompressed after byte {}: {}; copy it again", name,
                         bytes - rest.size(), why);
      if (text.empty() && rest.size() == before)
        return Error{atEnd ? fmt::format("{}: is cut short: its compressed data has no end up to "
                                         "byte {}, the last; copy it again",
                                         name, bytes)
                           : fmt::format("{}: cannot be decompressed after byte {}; copy it again",
                                         name, bytes - rest.size())};
    }
    return {};
  }
};

TextInput::TextInput() = default;
TextInput::~TextInput() = default;

Result<std::unique_ptr<TextInput>> TextInput::open(const std::string &path, Progress &progress) {
  std::unique_ptr<TextInput> input(new TextInput());
  input->state = std::make_unique<State>(path, progress);
  LMC_TRY(input->state->begin());
  return input;
}

Result<void> TextInput::skip(uint64_t bytes) {
  State &s = *state;
  if (bytes >= s.text.size() && s.isPlain()) {
    s.file.clear(); // clears the end flag that reading a short file sets, so that seekg() works
    s.file.seekg(static_cast<std::streamoff>(bytes));
    s.progress.advance(bytes - std::min(bytes, s.bytes));
    s.bytes = bytes;
    s.rest = {};
    s.fresh = false;
    return {};
  }
  while (bytes > 0 && bytes >= s.text.size()) {
    if (s.text.empty())
      return userError("{}: has become shorter", s.name);
    bytes -= s.text.size();
    LMC_TRY(s.fill());
  }
  s.text.erase(0, bytes);
  return {};
}

Result<std::string_view> TextInput::read() {
  if (!state->fresh)
    LMC_TRY(state->fill());
  state->fresh = false;
  return std::string_view(state->text);
}

int64_t Utf8Checker::check(std::string_view piece) {
  for (char each : piece) {
    const auto byte = static_cast<uint8_t>(each);
    bool valid = true;
    if (missing > 0) {
      valid = byte >= lowest && byte <= most;
      lowest = 0x80;
      most = 0xbf;
      --missing;
    } else if (byte >= 0x80) {
      // The bounds of the second byte exclude overlong forms, surrogates, and code points above
      // U+10FFFF (Unicode 15, table 3-7).
      valid = byte >= 0xc2 && byte <= 0xf4;
      missing = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
      lowest = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
      most = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
    }
    if (!valid)
      return static_cast<int64_t>(position);
    ++position;
  }
  return -1;
}

} // namespace lmc
