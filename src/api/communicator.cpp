#include "opwright/communicator.h"

#include <memory>
#include <optional>
#include <utility>

#include "api/border.h"
#include "backend/backend.h"
#include "backend/communicator.h"
#include "backend/rank_sockets.h"
#include "base/cast.h"
#include "base/error.h"
#include "plugin/abi/resource_context.h"

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
                                  char const* address, char const* token,
                                  int32_t version) noexcept {
  using namespace opwright;
  return create_face(
      logger, name != nullptr, "a communicator needs a logger and a name", version,
      [&](ILogger*) -> ICommunicator* {
        const std::optional<MeetingPlace> place = meeting_place(address, token);
        return std::make_unique<CommunicatorApi>(
                   Communicator::join(name, rank, nbRanks, timeoutSeconds, device_of(deviceType),
                                      place ? &*place : nullptr))
            .release();
      });
}

bool getPluginCommunicator_INTERNAL(opwright::IPluginResourceContext const* context,
                                    opwright::PluginCommunicator* communicator, int32_t) noexcept {
  using namespace opwright;
  const auto* const own = cast_to<const ResourceContext>(context);
  if (own == nullptr || communicator == nullptr) return false;
  try {
    const RunCommunicator& found = own->communicator()->find();
    *communicator = {found.use.rank, found.use.ranks, found.name(), found.use.handle};
    return true;
  } catch (const std::exception& error) {
    own->note_refusal(error.what());
    return false;
  }
}

bool getPluginPeerMemory_INTERNAL(opwright::IPluginResourceContext const* context, char const* name,
                                  int64_t size, opwright::PluginPeerMemory* memory,
                                  int32_t) noexcept {
  using namespace opwright;
  const auto* const own = cast_to<const ResourceContext>(context);
  if (own == nullptr || name == nullptr || memory == nullptr) return false;
  try {
    require(size > 0, "getPeerMemory: the size is ", size, "; expected bytes, 1 or more");
    *memory = {size, nullptr, nullptr, nullptr, nullptr};
    const PeerBuffers* const found =
        own->communicator()->peer_buffers(name, static_cast<size_t>(size));
    if (found == nullptr) return true;
    const PeerBuffers::Table table = found->table();
    *memory = {size, found->buffers().data(), table.buffers, table.counters, table.stop};
    return true;
  } catch (const std::exception& error) {
    own->note_refusal(error.what());
    return false;
  }
}
