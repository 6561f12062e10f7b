// SPDX-License-Identifier: Apache-2.0
// Accepts programs and the controller, and decides when this process ends.
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "slot.h"
#include "tessera/transport/socket.h"
#include "worker.h"

namespace tessera::worker {

/// Which addresses are in use, and by whom.
class Slots {
 public:
  /// Takes a slot; false when it still overlaps another one after `patience`.
  bool claim(const Slot& slot, std::chrono::milliseconds patience);
  void release(const Slot& slot);

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<Slot> taken_;
};

class Server {
 public:
  enum class End { kAsked, kPoisoned, kAlone };

  /// `signals` is a signalfd of the signals that mean "stop".
  Server(Worker& worker, transport::Listener listener, int signals);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Serves until it is to end. When sessions still live then, the process must exit without unwinding them.
  End run();
  bool has_sessions() const { return worker_.live_sessions.load() != 0; }

 private:
  struct Connection {
    std::thread thread;
    std::atomic<bool> done{false};
  };

  void accept_one();
  void reap();
  void serve(transport::Socket socket);
  void observe(const transport::Socket& socket);
  void attach(transport::Socket socket, transport::Packet packet);
  void refuse(const transport::Socket& socket, CUresult code, const std::string& text);
  bool alone_for_too_long();
  End stop_sessions();
  void wait_until_told(std::chrono::milliseconds limit);

  Worker& worker_;
  transport::Listener listener_;
  int signals_;
  const int parent_;
  Slots slots_;
  std::list<Connection> connections_;
  std::atomic<int> observers_{0};
  std::atomic<bool> closing_{false};
  std::optional<std::chrono::steady_clock::time_point> alone_since_;
};

}  // namespace tessera::worker
