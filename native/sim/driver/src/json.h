// SPDX-License-Identifier: Apache-2.0
// A small JSON reader for the device catalogue, and the escaping that the recorder needs.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera::sim {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json, std::less<>>;

  Json() = default;
  /// Throws std::runtime_error with line and column.
  static Json parse(std::string_view text);

  bool is_number() const { return std::holds_alternative<double>(value_); }
  double number() const { return get<double>("a number"); }
  const std::string& text() const { return get<std::string>("a string"); }
  const Array& array() const { return get<Array>("an array"); }
  const Object& object() const { return get<Object>("an object"); }
  /// Member of an object; null when absent.
  const Json* find(std::string_view name) const;

 private:
  friend class JsonReader;
  template <class T>
  const T& get(const char* what) const {
    if (const T* value = std::get_if<T>(&value_)) return *value;
    throw std::runtime_error(std::string("expected ") + what);
  }
  std::variant<std::nullptr_t, bool, double, std::string, Array, Object> value_;
};

/// `text` as a JSON string, quotes included.
std::string json_quote(std::string_view text);

}  // namespace tessera::sim
