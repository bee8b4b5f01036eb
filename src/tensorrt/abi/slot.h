#pragma once

#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "tensorrt/abi/kinds.h"
#include "tensorrt/abi/numbers.h"
#include "tensorrt/abi/received.h"

/// \file
/// Virtual tables from descriptions. A description lists the methods of a class of TensorRT's in
/// the order of its slots, each with the method of Opwright's that it calls and the versions that
/// have it. A function with the object as first parameter takes the place of a method that Opwright
/// has under another name or not at all.

namespace opwright::tensorrt {

/// Classes whose objects are faces at the client.
template <class T>
concept Exposed = std::is_class_v<T> && requires(const T& object) {
  kind_of(object);
};

/// How an argument or result of type T crosses the border; most types are the same on both sides.
template <class T>
struct Crossing {
  using Foreign = T;
  static T in(Facade&, T value) { return value; }
  static T out(Facade&, T value) { return value; }
};
template <>
struct Crossing<void> {
  using Foreign = void;
};
template <Exposed T>
struct Crossing<T*> {
  using Foreign = Facade*;
  static T* in(Facade&, Facade* face) {
    return face == nullptr ? nullptr : static_cast<T*>(face->object());
  }
  static Facade* out(Facade& beside, T* object) {
    if (object == nullptr) return nullptr;
    return Facade::of(const_cast<std::remove_const_t<T>*>(object), kind_of(*object), beside);
  }
};
template <Exposed T>
struct Crossing<T&> {
  using Foreign = Facade*;
  static T& in(Facade&, Facade* face) { return *static_cast<T*>(face->object()); }
  static Facade* out(Facade& beside, T& object) { return Crossing<T*>::out(beside, &object); }
};
/// Interfaces that the client implements, and whose tables differ between versions.
template <Received T>
struct Crossing<T*> {
  using Foreign = void*;
  static T* in(Facade& face, void* theirs) { return Adapter<T>::adapt(theirs, face.major()); }
  static void* out(Facade& face, T* ours) { return Adapter<T>::original(ours, face.major()); }
};
template <Received T>
struct Crossing<T&> {
  using Foreign = void*;
  static T& in(Facade& face, void* theirs) { return *Crossing<T*>::in(face, theirs); }
  static void* out(Facade& face, T& ours) { return Crossing<T*>::out(face, &ours); }
};
template <Renumbered T>
struct Crossing<T> {
  using Foreign = int32_t;
  static T in(Facade& face, int32_t theirs) {
    return static_cast<T>(own_number<T>(theirs, face.major()));
  }
  static int32_t out(Facade& face, T ours) {
    return their_number<T>(static_cast<int32_t>(ours), face.major());
  }
};
template <Renumbered T>
struct Crossing<Mask<T>> {
  using Foreign = uint32_t;
  static Mask<T> in(Facade& face, uint32_t theirs) { return {own_bits<T>(theirs, face.major())}; }
  static uint32_t out(Facade& face, Mask<T> ours) { return their_bits<T>(ours.bits, face.major()); }
};
template <>
struct Crossing<IPluginRegistry&> {
  using Foreign = void*;
  static void* out(Facade& beside, IPluginRegistry& registry) {
    return beside.major() == 10 ? static_cast<void*>(&registry)
                                : Facade::of(&registry, registry_kind, beside)->part();
  }
};

/// The type in TensorRT's declaration: that of Opwright's, but for sets of renumbered flags.
template <class T>
struct Declared {
  using Type = T;
};
template <class T>
struct Declared<Mask<T>> {
  using Type = uint32_t;
};

/// A function with the signature of a virtual method of the client's, which calls Opwright's.
template <class Self, auto method, class R, class... Args>
struct Call {
  using Signature = typename Declared<R>::Type(typename Declared<Args>::Type...);
  static typename Crossing<R>::Foreign run(Part* part,
                                           typename Crossing<Args>::Foreign... args) noexcept {
    Self& self = *static_cast<Self*>(part->object);
    Facade& face = *part->facade;
    const auto call = [&]() -> R {
      if constexpr (std::is_member_function_pointer_v<decltype(method)>)
        return (self.*method)(Crossing<Args>::in(face, args)...);
      else
        return method(self, Crossing<Args>::in(face, args)...);
    };
    if constexpr (std::is_void_v<R>)
      call();
    else
      return Crossing<R>::out(face, call());
  }
};
template <class Self, auto method, class Type>
struct CallOf;
template <class Self, auto method, class R, class C, class... Args>
struct CallOf<Self, method, R (C::*)(Args...) noexcept> : Call<Self, method, R, Args...> {};
template <class Self, auto method, class R, class C, class... Args>
struct CallOf<Self, method, R (C::*)(Args...) const noexcept> : Call<Self, method, R, Args...> {};
template <class Self, auto method, class R, class C, class... Args>
struct CallOf<Self, method, R (C::*)(Args...)> : Call<Self, method, R, Args...> {};
template <class Self, auto method, class R, class C, class... Args>
struct CallOf<Self, method, R (C::*)(Args...) const> : Call<Self, method, R, Args...> {};
template <class Self, auto method, class R, class S, class... Args>
struct CallOf<Self, method, R (*)(S&, Args...)> : Call<Self, method, R, Args...> {};

template <auto method>
constexpr auto pointer_to() {
  if constexpr (std::is_class_v<decltype(method)>)
    return +method;  // a lambda's function
  else
    return method;
}

struct Slot {
  const char* name;
  void* function;
  const std::type_info* type;  ///< The method's signature, with Opwright's types.
  int first = 10;              ///< The first and the last major version that have the slot.
  int last = 11;
  int first_minor = 0;  ///< The first minor version of `first` that has the slot.
};

/// The slot of `name` that calls a method, or a function without captures.
template <class Self, auto method>
Slot slot(const char* name) {
  using Call = CallOf<Self, method, decltype(pointer_to<method>())>;
  return {name, reinterpret_cast<void*>(&Call::run), &typeid(typename Call::Signature)};
}
/// A slot that TensorRT 11 no longer has.
inline Slot until_10(Slot slot) {
  slot.last = 10;
  return slot;
}
/// A slot that TensorRT 10 does not have.
inline Slot since_11(Slot slot) {
  slot.first = 11;
  return slot;
}
/// A slot that TensorRT 11.1 does not have, but 11.4.
inline Slot since_11_4(Slot slot) {
  slot = since_11(slot);
  slot.first_minor = 4;
  return slot;
}
/// The two slots of a destructor.
std::vector<Slot> destructor();
/// The slot of a method that returns the face of an implementation.
Slot own_face();

/// The virtual tables of a class, for each version. Behind the described slots there are some for
/// methods that a later minor version may have: these warn and return false, null or 0.
struct Table {
  /// \param slots begin with the destructor's, unless it is among them.
  Table(const char* name, std::vector<Slot> slots);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  void* const* of(int major) const { return (major == 10 ? table_10 : table_11).data() + 2; }

  const char* name;
  std::vector<Slot> slots;

 private:
  // With the two words in front of a virtual table.
  std::vector<void*> table_10, table_11;
};

/// Warns that Opwright does not have a method. \return false, for the method to return.
bool lacks(const char* method);
/// Values in the type of an older method: good until the next call on the thread. Null for null.
const int32_t* narrowed(const int64_t* values, int32_t count);

/// All tables, a line for each slot: class, number, method, signature, first version.
std::string described_tables(int major);

}  // namespace opwright::tensorrt

/// The slot of a method that Opwright has under the same name.
#define OPWRIGHT_SAME(Class, method) ::opwright::tensorrt::slot<Class, &Class::method>(#method)
/// The two slots of a property that Opwright has under the same name: set and get.
#define OPWRIGHT_PROPERTY(Class, Name) \
  OPWRIGHT_SAME(Class, set##Name), OPWRIGHT_SAME(Class, get##Name)
/// The slot of a method whose body follows: a lambda whose first parameter is the object.
#define OPWRIGHT_OTHER(Class, method, ...) ::opwright::tensorrt::slot<Class, __VA_ARGS__>(#method)
