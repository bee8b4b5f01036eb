#include "gpu_allocator.h"

#include "base/cast.h"
#include "base/error.h"
#include "handle.h"
#include "held.h"

namespace opwright::python {
namespace {

uint64_t to_integer(cudaStream_t stream) { return reinterpret_cast<uintptr_t>(stream); }

/// The C++ face of a Python IGpuAllocator. The plugin callback that called its methods throws their
/// exceptions.
class AllocatorFace final : public IGpuAllocator {
 public:
  explicit AllocatorFace(nb::object object) : object_(std::move(object)) {}
  const nb::object& object() const { return object_.get(); }
  APILanguage getAPILanguage() const noexcept override { return APILanguage::kPYTHON; }

  void* allocate(uint64_t size, uint64_t alignment, AllocatorFlags flags) noexcept override {
    return address("allocate", size, alignment, flags);
  }
  void* reallocate(void* memory, uint64_t alignment, uint64_t size) noexcept override {
    return address("reallocate", reinterpret_cast<uintptr_t>(memory), alignment, size);
  }
  bool deallocate(void* memory) noexcept override {
    return truth("deallocate", reinterpret_cast<uintptr_t>(memory));
  }
  void* allocateAsync(uint64_t size, uint64_t alignment, AllocatorFlags flags,
                      cudaStream_t stream) noexcept override {
    return address("allocate_async", size, alignment, flags, to_integer(stream));
  }
  bool deallocateAsync(void* memory, cudaStream_t stream) noexcept override {
    return truth("deallocate_async", reinterpret_cast<uintptr_t>(memory), to_integer(stream));
  }

 private:
  template <class... Args>
  void* address(const char* method, Args... args) noexcept {
    return guarded<void*>(nullptr, method, [&]() -> void* {
      nb::object memory = object().attr(method)(args...);
      if (memory.is_none()) return nullptr;
      return nb::cast<Handle>(memory).as<void*>();
    });
  }
  template <class... Args>
  bool truth(const char* method, Args... args) noexcept {
    return guarded(false, method,
                   [&] { return nb::cast<bool>(nb::bool_(object().attr(method)(args...))); });
  }
  Reference object_;
};

/// An allocator that C++ code implements; the Python class LibraryAllocator wraps it.
struct AllocatorHandle {
  ResourceContextRef context;

  IGpuAllocator& get() const {
    IGpuAllocator* allocator = context.get().getGpuAllocator();
    require(allocator != nullptr, "this resource context has no allocator");
    return *allocator;
  }
};

uintptr_t to_integer(void* memory) { return reinterpret_cast<uintptr_t>(memory); }

}  // namespace

std::shared_ptr<IGpuAllocator> to_allocator(nb::handle object) {
  if (object.is_none()) return nullptr;
  if (!nb::hasattr(object, "allocate") || !nb::hasattr(object, "deallocate"))
    throw nb::type_error(("gpu_allocator: expected an IGpuAllocator with allocate and deallocate, "
                          "or None; " +
                          nb::cast<std::string>(nb::repr(object)) + " came")
                             .c_str());
  return std::make_shared<AllocatorFace>(nb::borrow(object));
}

void HeldObjects::tell(const std::shared_ptr<IGpuAllocator>& allocator) {
  if (allocator.use_count() != 1) return;
  if (auto* face = cast_to<AllocatorFace>(allocator.get())) tell(face->object());
}

std::shared_ptr<IGpuAllocator> own_face(const std::shared_ptr<IGpuAllocator>& allocator) {
  auto* face = cast_to<AllocatorFace>(allocator.get());
  return face != nullptr ? std::make_shared<AllocatorFace>(face->object()) : allocator;
}

nb::object to_python(const std::shared_ptr<IGpuAllocator>& allocator) {
  auto* face = cast_to<AllocatorFace>(allocator.get());
  return face != nullptr ? face->object() : nb::none();
}

nb::object context_allocator(const ResourceContextRef& context) {
  IGpuAllocator* allocator = context.get().getGpuAllocator();
  if (allocator == nullptr) return nb::none();
  if (auto* face = cast_to<AllocatorFace>(allocator)) return face->object();
  return nb::module_::import_("opwright._runtime_classes")
      .attr("LibraryAllocator")(AllocatorHandle{context});
}

void bind_gpu_allocator(nb::module_& m) {
  nb::enum_<AllocatorFlag>(m, "AllocatorFlag", nb::is_arithmetic(),
                           "Bits of the flags of IGpuAllocator.allocate.")
      .value("RESIZABLE", AllocatorFlag::kRESIZABLE);
  nb::class_<AllocatorHandle>(m, "_AllocatorHandle", "An allocator that C++ code implements.")
      .def("allocate",
           [](const AllocatorHandle& self, uint64_t size, uint64_t alignment, uint32_t flags) {
             return to_integer(
                 call_plugin("", [&] { return self.get().allocate(size, alignment, flags); }));
           })
      .def("reallocate",
           [](const AllocatorHandle& self, uintptr_t memory, uint64_t alignment, uint64_t size) {
             return to_integer(call_plugin("", [&] {
               return self.get().reallocate(reinterpret_cast<void*>(memory), alignment, size);
             }));
           })
      .def("deallocate",
           [](const AllocatorHandle& self, uintptr_t memory) {
             return call_plugin(
                 "", [&] { return self.get().deallocate(reinterpret_cast<void*>(memory)); });
           })
      .def("allocate_async",
           [](const AllocatorHandle& self, uint64_t size, uint64_t alignment, uint32_t flags,
              uintptr_t stream) {
             return to_integer(call_plugin("", [&] {
               return self.get().allocateAsync(size, alignment, flags,
                                               reinterpret_cast<cudaStream_t>(stream));
             }));
           })
      .def("deallocate_async", [](const AllocatorHandle& self, uintptr_t memory, uintptr_t stream) {
        return call_plugin("", [&] {
          return self.get().deallocateAsync(reinterpret_cast<void*>(memory),
                                            reinterpret_cast<cudaStream_t>(stream));
        });
      });
}

}  // namespace opwright::python
