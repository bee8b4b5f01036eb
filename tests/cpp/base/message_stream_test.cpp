#include "base/message_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>

namespace opwright {
namespace {

Blob blob(const std::string& text) { return Blob::copy(text.data(), text.size()); }

std::string text(const Blob& blob) { return {blob.as<char>(), blob.size()}; }

bool always() { return true; }

class MessageStreams : public testing::Test {
 protected:
  MessageStreams() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    a = std::make_unique<MessageStream>(ends[0]);
    b = std::make_unique<MessageStream>(ends[1]);
  }
  std::unique_ptr<MessageStream> a, b;
};

TEST_F(MessageStreams, CarryMessagesLargerThanTheSocket) {
  const std::string large(10 << 20, 'x');
  std::thread sender([&] {
    const Blob pieces[] = {blob("first, "), blob(large), Blob()};
    EXPECT_TRUE(a->send(7, pieces, always));
    EXPECT_TRUE(a->send(8, {}, always));
  });
  const auto message = b->receive(UINT64_MAX, always);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->kind, 7);
  EXPECT_EQ(text(message->bytes), "first, " + large);
  const auto empty = b->receive(0, always);
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->kind, 8);
  EXPECT_EQ(empty->bytes.size(), 0u);
  sender.join();
}

TEST_F(MessageStreams, SayThatTheOtherEndIsClosed) {
  const Blob part = blob("part");
  EXPECT_TRUE(a->send(1, {&part, 1}, always));
  a.reset();
  EXPECT_TRUE(b->receive(4, always));
  EXPECT_FALSE(b->receive(4, always));
  EXPECT_FALSE(b->send(1, {&part, 1}, always)) << "without a signal";
}

TEST_F(MessageStreams, GiveUpWhereTheyAreTold) {
  int calls = 0;
  EXPECT_FALSE(b->receive(4, [&] { return ++calls < 3; }));
  EXPECT_EQ(calls, 3);
  const Blob large = blob(std::string(10 << 20, 'x'));
  EXPECT_FALSE(b->send(1, {&large, 1}, [] { return false; })) << "nobody reads it";
}

TEST_F(MessageStreams, AreNotAskedForMoreThanWanted) {
  const Blob part = blob("part");
  EXPECT_TRUE(a->send(1, {&part, 1}, always));
  EXPECT_FALSE(b->receive(3, always));
}

}  // namespace
}  // namespace opwright
