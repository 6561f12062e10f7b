// SPDX-License-Identifier: Apache-2.0
// cuLink*: collects PTX; the parts are linked when the result is loaded, and
// tried out here so that an unresolved symbol is found where it should be.
#include <cstring>

#include "api.h"
#include "device.h"
#include "image.h"
#include "jit_options.h"
#include "module.h"
#include "object.h"
#include "report.h"
#include "thread_state.h"

namespace tessera::sim {
namespace {

class LinkState : public Object {
 public:
  static constexpr Tag kTag = Tag::kLinkState;
  LinkState(Device& for_device, JitOptions jit)
      : Object(kTag), device(&for_device), compute_capability(for_device.model().compute_capability()), options(jit) {}

  void add(const Image& image) {
    for (const std::string& part : image.linked) parts.push_back(part);
    if (!image.linked.empty()) return;
    const Image::Text* best = nullptr;
    for (const Image::Text& text : image.texts) {
      if (text.architecture <= compute_capability && (best == nullptr || text.architecture > best->architecture)) {
        best = &text;
      }
    }
    if (best == nullptr) {
      log += image.recognised ? "error   : the input holds no PTX for this device\n"
                              : "error   : the input is neither PTX nor a fatbin\n" + image.problems;
      options.write("", log);
      fail(image.recognised && image.machine_code > 0 ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE);
    }
    parts.push_back(best->ptx);
  }

  Device* const device;
  const uint32_t compute_capability;
  JitOptions options;
  std::vector<std::string> parts;
  std::string log, output;
};

LinkState& link_of(CUlinkState handle) { return from_handle<LinkState>(handle); }

bool is_ptx_like(CUjitInputType type) {
  return type == CU_JIT_INPUT_PTX || type == CU_JIT_INPUT_FATBINARY || type == CU_JIT_INPUT_CUBIN ||
         type == CU_JIT_INPUT_OBJECT || type == CU_JIT_INPUT_LIBRARY;
}

// PTX inputs need no final NUL: the size says where they end.
Image input_image(CUjitInputType type, const void* data, size_t size) {
  if (type != CU_JIT_INPUT_PTX) return read_image_memory(data);
  return read_image_memory(
      std::string(static_cast<const char*>(data), strnlen(static_cast<const char*>(data), size)).c_str());
}

// An unresolved symbol is found here, as by a real linker, not when the output is loaded.
void check_resolved(LinkState& link) {
  Image image;
  image.recognised = true;
  image.linked = link.parts;
  const CUresult result = try_load(image, *link.device, link.log);
  if (result == CUDA_SUCCESS) return;
  link.options.write("", link.log);
  fail(CUDA_ERROR_INVALID_SOURCE);
}

}  // namespace
}  // namespace tessera::sim

using namespace tessera::sim;

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues, CUlinkState* stateOut) {
  return api([&] {
    const Context& context = current_context();
    require(stateOut != nullptr);
    *stateOut = to_handle<CUlinkState>(new LinkState(context.device(), JitOptions(numOptions, options, optionValues)));
  });
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size, const char*, unsigned int,
                          CUjit_option*, void**) {
  return api([&] {
    LinkState& link = link_of(state);
    require(data != nullptr && size > 0 && is_ptx_like(type));
    link.add(input_image(type, data, size));
  });
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned int, CUjit_option*,
                          void**) {
  return api([&] {
    LinkState& link = link_of(state);
    require(path != nullptr && is_ptx_like(type));
    link.add(read_image_file(path));
  });
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  return api([&] {
    LinkState& link = link_of(state);
    require(cubinOut != nullptr && !link.parts.empty());
    check_resolved(link);
    link.output = link_container(link.parts);
    *cubinOut = link.output.data();
    if (sizeOut != nullptr) *sizeOut = link.output.size() + 1;  // with the NUL that makes it loadable
    link.options.write(link.log, "");
  });
}

CUresult cuLinkDestroy(CUlinkState state) {
  return api([&] {
    LinkState& link = link_of(state);
    link.kill(LinkState::kTag);
    link.release();
  });
}
