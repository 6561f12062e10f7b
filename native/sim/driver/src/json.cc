// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <charconv>
#include <cstdint>
#include <cstdio>

namespace tessera::sim {

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  Json document() {
    Json value = read();
    skip();
    if (at_ != text_.size()) error("text after the end of the document");
    return value;
  }

 private:
  [[noreturn]] void error(const std::string& what) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) {
      ++column;
      if (text_[i] == '\n') ++line, column = 1;
    }
    throw std::runtime_error("line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + what);
  }

  void skip() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  char peek() {
    skip();
    if (at_ == text_.size()) error("unexpected end");
    return text_[at_];
  }

  void expect(char c) {
    if (peek() != c) error(std::string("expected '") + c + "'");
    ++at_;
  }

  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  bool word(std::string_view w) {
    if (text_.substr(at_, w.size()) != w) return false;
    at_ += w.size();
    return true;
  }

  Json read() {
    if (++depth_ > 64) error("nested too deeply");
    Json json;
    const char c = peek();
    if (c == '{')
      json.value_ = read_object();
    else if (c == '[')
      json.value_ = read_array();
    else if (c == '"')
      json.value_ = read_string();
    else if (word("true"))
      json.value_ = true;
    else if (word("false"))
      json.value_ = false;
    else if (word("null"))
      json.value_ = nullptr;
    else
      json.value_ = read_number();
    --depth_;
    return json;
  }

  Json::Object read_object() {
    Json::Object object;
    expect('{');
    if (take('}')) return object;
    do {
      if (peek() != '"') error("expected a name");
      std::string name = read_string();
      expect(':');
      object.insert_or_assign(std::move(name), read());
    } while (take(','));
    expect('}');
    return object;
  }

  Json::Array read_array() {
    Json::Array array;
    expect('[');
    if (take(']')) return array;
    do array.push_back(read());
    while (take(','));
    expect(']');
    return array;
  }

  std::string read_string() {
    std::string out;
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      char c = text_[at_++];
      if (c == '\\') {
        if (at_ == text_.size()) break;
        c = text_[at_++];
        if (c == 'n')
          c = '\n';
        else if (c == 't')
          c = '\t';
        else if (c != '"' && c != '\\' && c != '/')
          error("escape not supported");
      }
      out += c;
    }
    if (at_ >= text_.size()) error("string without end");
    ++at_;
    return out;
  }

  double read_number() {
    double number = 0;
    const char* begin = text_.data() + at_;
    const auto [end, code] = std::from_chars(begin, text_.data() + text_.size(), number);
    if (code != std::errc() || end == begin) error("expected a value");
    at_ += static_cast<size_t>(end - begin);
    return number;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

Json Json::parse(std::string_view text) { return JsonReader(text).document(); }

const Json* Json::find(std::string_view name) const {
  const auto& members = object();
  const auto found = members.find(name);
  return found == members.end() ? nullptr : &found->second;
}

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace tessera::sim
