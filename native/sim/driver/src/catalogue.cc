// SPDX-License-Identifier: Apache-2.0
#include "catalogue.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "json.h"

namespace tessera::sim {
namespace {

using Catalogue = std::map<std::string, DeviceModel>;

// The catalogue stands beside the library, in the build tree and when installed.
std::string catalogue_path() {
  if (const char* named = std::getenv("TESSERA_SIM_CATALOGUE"); named != nullptr && *named != '\0') return named;
  Dl_info info = {};
  dladdr(reinterpret_cast<void*>(&describe_machine), &info);
  const std::string library = info.dli_fname != nullptr ? info.dli_fname : "";
  const size_t slash = library.rfind('/');
  return (slash == std::string::npos ? std::string(".") : library.substr(0, slash)) + "/catalogue.json";
}

double number(const Json& object, const char* name) {
  const Json* value = object.find(name);
  if (value == nullptr) throw std::runtime_error(std::string("member '") + name + "' is missing");
  const double read = value->number();
  if (!(read > 0)) throw std::runtime_error(std::string("member '") + name + "' must be positive");
  return read;
}

void read_capability(const std::string& text, DeviceModel& model) {
  int used = 0;
  if (std::sscanf(text.c_str(), "%u.%u%n", &model.major, &model.minor, &used) != 2 ||
      static_cast<size_t>(used) != text.size()) {
    throw std::runtime_error("'" + text + "' is no compute capability; write it as 8.0");
  }
}

const Json& child(const Json& object, const char* name) {
  const Json* value = object.find(name);
  if (value == nullptr) throw std::runtime_error(std::string("member '") + name + "' is missing");
  return *value;
}

DeviceModel read_model(const std::string& key, const Json& json) {
  DeviceModel model;
  model.key = key;
  model.name = child(json, "name").text();
  read_capability(child(json, "compute_capability").text(), model);
  model.memory_bytes = static_cast<uint64_t>(number(json, "memory_bytes"));
  model.memory_bandwidth = number(json, "memory_bandwidth");
  model.multiprocessors = static_cast<uint32_t>(number(json, "multiprocessors"));
  model.l2_bytes = static_cast<uint64_t>(number(json, "l2_bytes"));
  model.clock_khz = static_cast<uint32_t>(number(json, "clock_khz"));
  model.memory_clock_khz = static_cast<uint32_t>(number(json, "memory_clock_khz"));
  model.memory_bus_bits = static_cast<uint32_t>(number(json, "memory_bus_bits"));
  const Json& flops = child(json, "flops");
  model.f64 = number(flops, "f64");
  model.f32 = number(flops, "f32");
  model.f16 = number(flops, "f16");
  model.tensor_f64 = number(flops, "tensor_f64");
  model.tensor_tf32 = number(flops, "tensor_tf32");
  model.tensor_f16 = number(flops, "tensor_f16");
  model.tensor_bf16 = number(flops, "tensor_bf16");
  model.tensor_i8 = number(flops, "tensor_i8");
  model.peer_bandwidth = number(child(json, "peer_link"), "bandwidth");
  model.peer_latency_us = number(child(json, "peer_link"), "latency_us");
  model.host_bandwidth = number(child(json, "host_link"), "bandwidth");
  model.host_latency_us = number(child(json, "host_link"), "latency_us");
  model.launch_overhead_us = number(json, "launch_overhead_us");
  model.price_per_hour = number(json, "price_per_hour");
  return model;
}

Catalogue read_catalogue(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw std::runtime_error("the device catalogue " + path +
                             " cannot be read; set TESSERA_SIM_CATALOGUE to a catalogue.json");
  }
  std::stringstream text;
  text << file.rdbuf();
  Catalogue catalogue;
  try {
    const Json document = Json::parse(text.str());
    for (const auto& [key, json] : child(document, "devices").object()) {
      try {
        catalogue.emplace(key, read_model(key, json));
      } catch (const std::runtime_error& error) {
        throw std::runtime_error("device '" + key + "': " + error.what());
      }
    }
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
  return catalogue;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

uint64_t read_bytes(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  double unit = 1;
  if (*end == 'K')
    unit = 1024.0, ++end;
  else if (*end == 'M')
    unit = 1024.0 * 1024, ++end;
  else if (*end == 'G')
    unit = 1024.0 * 1024 * 1024, ++end;
  if (end == text.c_str() || *end != '\0' || !(value > 0)) {
    throw std::runtime_error("'" + text + "' is no amount of memory; write it as 512M or 2G");
  }
  return static_cast<uint64_t>(value * unit);
}

// "A100@8.0:memory=512M"
DeviceModel resolve(const std::string& wish, const Catalogue& catalogue) {
  const size_t colon = wish.find(':');
  const std::string head = wish.substr(0, colon);
  const size_t at = head.find('@');
  const std::string key = trimmed(head.substr(0, at));
  const auto found = catalogue.find(key);
  if (found == catalogue.end()) {
    std::string known;
    for (const auto& entry : catalogue) known += (known.empty() ? "" : ", ") + entry.first;
    throw std::runtime_error("TESSERA_SIM_DEVICES: there is no device '" + key +
                             "' in the catalogue, which has: " + known);
  }
  DeviceModel model = found->second;
  if (at != std::string::npos) read_capability(trimmed(head.substr(at + 1)), model);
  if (colon != std::string::npos) {
    const std::string option = trimmed(wish.substr(colon + 1));
    if (option.compare(0, 7, "memory=") != 0) {
      throw std::runtime_error("TESSERA_SIM_DEVICES: '" + option + "' is no option; there is memory=SIZE");
    }
    constexpr uint64_t kChunk = 2 << 20;
    model.memory_bytes = std::max(read_bytes(option.substr(7)) / kChunk, uint64_t{1}) * kChunk;
  }
  return model;
}

// Stable from run to run and from process to process: a hash of the place and the name (FNV-1a, twice).
void make_uuid(MachineDevice& device) {
  const std::string seed = "tessera-sim/" + std::to_string(device.physical_ordinal) + "/" + device.model.name;
  for (int half = 0; half < 2; ++half) {
    uint64_t hash = 0xcbf29ce484222325u + static_cast<uint64_t>(half);
    for (const char c : seed) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    std::memcpy(device.uuid + 8 * half, &hash, 8);
  }
}

std::string uuid_text(const MachineDevice& device) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char byte[4];
    std::snprintf(byte, sizeof(byte), "%02x", device.uuid[i]);
    text += byte;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

// An ordinal, or the beginning of exactly one UUID.
const MachineDevice* match(const std::vector<MachineDevice>& all, const std::string& word) {
  if (word.compare(0, 4, "GPU-") == 0) {
    const MachineDevice* found = nullptr;
    for (const MachineDevice& device : all) {
      if (uuid_text(device).compare(0, word.size(), word) != 0) continue;
      if (found != nullptr) return nullptr;
      found = &device;
    }
    return found;
  }
  char* end = nullptr;
  const long ordinal = std::strtol(word.c_str(), &end, 10);
  if (end == word.c_str() || ordinal < 0 || ordinal >= static_cast<long>(all.size())) return nullptr;
  return &all[static_cast<size_t>(ordinal)];
}

}  // namespace

Architecture architecture_of(uint32_t compute_capability) {
  constexpr uint32_t kKiB = 1024;
  if (compute_capability >= 120) return {1536, 24, 100 * kKiB, 99 * kKiB, kKiB, 2};
  if (compute_capability >= 90) return {2048, 32, 228 * kKiB, 227 * kKiB, kKiB, 3};
  if (compute_capability == 89) return {1536, 24, 100 * kKiB, 99 * kKiB, kKiB, 2};
  if (compute_capability >= 86) return {1536, 16, 100 * kKiB, 99 * kKiB, kKiB, 2};
  if (compute_capability >= 80) return {2048, 32, 164 * kKiB, 163 * kKiB, kKiB, 3};
  return {1024, 16, 64 * kKiB, 64 * kKiB, 0, 3};
}

std::vector<MachineDevice> describe_machine() {
  const Catalogue catalogue = read_catalogue(catalogue_path());
  const char* variable = std::getenv("TESSERA_SIM_DEVICES");
  std::stringstream wishes(variable != nullptr ? variable : "A100,L40S");
  std::vector<MachineDevice> machine;
  for (std::string wish; std::getline(wishes, wish, ',');) {
    if (trimmed(wish).empty()) continue;
    MachineDevice device;
    device.model = resolve(trimmed(wish), catalogue);
    device.physical_ordinal = static_cast<int>(machine.size());
    make_uuid(device);
    machine.push_back(std::move(device));
  }
  if (machine.size() > 16) throw std::runtime_error("TESSERA_SIM_DEVICES: at most 16 devices");
  return machine;
}

std::vector<MachineDevice> visible_devices(const std::vector<MachineDevice>& all, const char* variable) {
  if (variable == nullptr) return all;
  std::vector<MachineDevice> visible;
  std::stringstream words(variable);
  for (std::string word; std::getline(words, word, ',');) {
    const MachineDevice* device = match(all, trimmed(word));
    if (device == nullptr) break;  // what follows an invalid entry is hidden too
    for (const MachineDevice& seen : visible) {
      if (seen.physical_ordinal == device->physical_ordinal) return {};  // a device named twice hides all
    }
    visible.push_back(*device);
  }
  return visible;
}

}  // namespace tessera::sim
