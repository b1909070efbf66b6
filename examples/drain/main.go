// Command drain is an example: a small web site that lets its visitors leave before it is upgraded.
//
//	go run ./examples/drain --engine sqlite:site.db &
//	lk --engine sqlite:site.db run shop --note "New shelves until noon." -- ./upgrade.sh
//
// The upgrade begins when the last visitor has left; meanwhile, and until it has ended, newcomers
// see the page "back soon". With --soft the site stays open until nobody happens to be there, and
// with --soft --quiet-period 10m until nobody has been there for ten minutes. Neither the web server
// nor the upgrade knows the other one; any engine will do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lockkeeper/lockkeeper"
	_ "github.com/lockkeeper/lockkeeper/engine/all"
)

func main() {
	engine := flag.String("engine", "", "URL of the engine that keeps the locks, as for lk")
	listen := flag.String("listen", "127.0.0.1:8080", "address of the web server")
	idle := flag.Duration("idle", 10*time.Minute, "a visit ends when no request has come for this long")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *engine, *listen, *idle); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url, listen string, idle time.Duration) error {
	engine, err := lockkeeper.Open(ctx, url)
	if err != nil {
		return err
	}
	locks := lockkeeper.New(engine, lockkeeper.SessionLabel(lockkeeper.Label{As: "web server " + listen}))
	defer locks.Close()
	server := &http.Server{
		Addr:              listen,
		Handler:           NewSite(locks, "shop", http.HandlerFunc(shop), idle),
		ReadHeaderTimeout: 10 * time.Second,
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	log.Printf("http://%s is open", listen)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func shop(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "Welcome to the shop.") }
