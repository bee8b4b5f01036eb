#include "opwright/communicator.h"

#include <memory>
#include <utility>

#include "api/border.h"
#include "backend/backend.h"
#include "backend/communicator.h"

namespace opwright {
namespace {

class CommunicatorApi final : public ICommunicator {
 public:
  explicit CommunicatorApi(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {
    communicator_->also_at(address());
  }
  ~CommunicatorApi() noexcept override { Communicator::forget(address()); }

  char const* getName() const noexcept override { return communicator_->name().c_str(); }
  int32_t getRank() const noexcept override { return communicator_->rank(); }
  int32_t getNbRanks() const noexcept override { return communicator_->ranks(); }

 private:
  /// What the user gives to setCommunicator().
  const void* address() const { return static_cast<const ICommunicator*>(this); }

  const std::shared_ptr<Communicator> communicator_;
};

}  // namespace
}  // namespace opwright

void* createCommunicator_INTERNAL(void* logger, char const* name, int32_t rank, int32_t nbRanks,
                                  double timeoutSeconds, opwright::DeviceType deviceType,
                                  int32_t version) noexcept {
  using namespace opwright;
  return create_face(
      logger, name != nullptr, "a communicator needs a logger and a name", version,
      [&](ILogger*) -> ICommunicator* {
        return std::make_unique<CommunicatorApi>(
                   Communicator::join(name, rank, nbRanks, timeoutSeconds, device_of(deviceType)))
            .release();
      });
}
