#pragma once

#include <array>
#include <cstdint>
#include <vector>

/// \file
/// The objects that a client of TensorRT's binary interface holds. Such an object is a virtual
/// table with a destructor, followed by up to three pointers to implementations, one for each class
/// from which the client's class derives (layer, boundary, kind of layer). The client's inline
/// methods call the implementations' virtual tables.

namespace opwright::tensorrt {

class Facade;
struct Table;

/// What the client takes for an implementation: a virtual table, and whom it serves.
struct Part {
  void* const* table;
  Facade* facade;
  void* object;  ///< Opwright's object.
};

/// How objects of a class look to a client.
struct Kind {
  std::array<const Table*, 3> tables;
  /// Deletes Opwright's object; null for objects that belong to another one.
  void (*destroy)(void* object) = nullptr;
};

/// The face of one of Opwright's objects in one version of the interface.
class Facade {
 public:
  /// The face of the object: always the same one while the object lives. A new one of an object
  /// that belongs to another goes with the owner of `beside`.
  static Facade* of(void* object, const Kind& kind, Facade& beside);
  /// The face of an object that the client owns.
  static Facade* owned(void* object, const Kind& kind, int major);
  /// Deletes the face, if there is one, of an object that is no more.
  void forget(void* object);

  virtual ~Facade();
  Facade(const Facade&) = delete;
  Facade& operator=(const Facade&) = delete;

  void* object() const { return parts_[0].object; }
  /// The major version of TensorRT for which the client was compiled.
  int major() const { return major_; }
  /// What a client holds of a class without inline methods.
  Part* part() { return parts_.data(); }

  /// Keeps what the client gave to a method whose counterpart returns it.
  void keep(Facade* given);
  /// What was kept; null if the client has deleted it since.
  Facade* kept() const;

 protected:
  Facade(void* object, const Kind& kind, int major);

 private:
  static Facade* make(void* object, const Kind& kind, int major);
  // Not inline, so that of() needs few registers.
  [[gnu::noinline]] static Facade* known_or_made(void* object, const Kind& kind, Facade& beside);

  std::array<Part*, 3> implementations_;  // first, as the client's inline methods expect
  std::array<Part, 3> parts_;
  void (*destroy_)(void* object);
  int major_;
  Facade* owner_ = nullptr;
  std::vector<Facade*> belongings_;
  Facade* given_ = nullptr;
  void* given_object_ = nullptr;
};

}  // namespace opwright::tensorrt
