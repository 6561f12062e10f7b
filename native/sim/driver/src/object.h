// SPDX-License-Identifier: Apache-2.0
// What driver handles point to. An object carries a tag, so that a destroyed
// handle, or a CUkernel where a CUfunction may also stand, is told apart. The
// memory of dead objects is reused for objects but never unmapped: reading the
// tag of a stale handle is defined.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "api.h"

namespace tessera::sim {

enum class Tag : uint32_t {
  kDead = 0,
  kContext = 0x7e550001,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kLibrary,
  kKernel,
  kPool,
  kLinkState,
  kPhysicalMemory,
  kGraph,
  kGraphNode,
  kGraphExec,
  kUserObject,
};

class Object {
 public:
  explicit Object(Tag tag) : tag_(tag) {}
  virtual ~Object() { tag_.store(Tag::kDead, std::memory_order_release); }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  Tag tag() const { return tag_.load(std::memory_order_acquire); }
  /// Takes the handle away from the program: from now on it is invalid. False when it was already.
  bool kill(Tag tag) { return tag_.compare_exchange_strong(tag, Tag::kDead, std::memory_order_acq_rel); }

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  static void* operator new(size_t size);
  static void operator delete(void* memory, size_t size);

 private:
  std::atomic<Tag> tag_;
  std::atomic<uint32_t> references_{1};
};

/// Owning reference. Ref<T>(new T) adopts the first reference.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* adopted) : object_(adopted) {}
  static Ref share(T* object) {
    if (object != nullptr) object->retain();
    return Ref(object);
  }
  Ref(const Ref& other) : object_(other.object_) {
    if (object_ != nullptr) object_->retain();
  }
  Ref(Ref&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) object_->release();
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  /// Gives the reference to the program as a handle.
  T* detach() {
    T* object = object_;
    object_ = nullptr;
    return object;
  }
  bool operator==(const Ref& other) const { return object_ == other.object_; }

 private:
  T* object_ = nullptr;
};

/// The object behind a handle; fails with `code` when the handle is not one of T's.
template <class T, class Handle>
T& from_handle(Handle handle, CUresult code = CUDA_ERROR_INVALID_HANDLE) {
  const auto address = reinterpret_cast<uintptr_t>(handle);
  require(address >= 4096 && address % alignof(Object) == 0, code);
  auto* object = reinterpret_cast<Object*>(address);
  require(object->tag() == T::kTag, code);
  return *static_cast<T*>(object);
}

template <class Handle, class T>
Handle to_handle(T* object) {
  return reinterpret_cast<Handle>(static_cast<Object*>(object));
}

}  // namespace tessera::sim
