package main

import (
	"log/slog"
	"net"
	"os"
)

// notifySystemd sends the state of the service to the service manager, if it asks for it:
// sd_notify(3).
func notifySystemd(state string, log *slog.Logger) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	manager, err := net.Dial("unixgram", socket) // net knows that @ begins an abstract one
	if err == nil {
		_, err = manager.Write([]byte(state))
		manager.Close()
	}
	if err != nil {
		log.Warn("can't notify the service manager", "error", err)
	}
}
