package lockkeeper_test

import (
	"context"
	"errors"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// plainScenes are what TestPlainLocksLookTheSame does with plain locks.
var plainScenes = map[string]func(w *plainWorld){
	"release": func(w *plainWorld) {
		h := w.lock("x/y")
		w.look(h)
		w.see("release", h.Release(background))
		w.look(h)
		w.see("again", h.Release(background), h.Close())
		w.context(h)
		w.look(h)
		w.see("again", h.Release(background), h.Amend(background, lockkeeper.WithPriority(3)))
	},
	"context": func(w *plainWorld) {
		h := w.lock("x/y")
		w.context(h)
		w.look(h)
		inside, err := w.a.Lock(h.Context(), "x/y/z")
		w.see("inside", err)
		_, err = w.a.Lock(h.Context(), "x/y", lockkeeper.WithWait(0))
		w.see("inside", err)
		w.see("release", h.Release(background), inside.Err(), inside.Release(background))
		w.context(h)
	},
	"release with a context that has ended": func(w *plainWorld) {
		h := w.lock("x")
		ctx, cancel := context.WithCancel(background)
		cancel()
		w.see("release", h.Release(ctx))
		_, err := w.b.TryLock(background, "x")
		w.see("next", err)
	},
	"wait": func(w *plainWorld) {
		h := w.lock("x")
		go func() {
			next, err := w.b.Lock(background, "x")
			w.aside.see("next", err)
			w.aside.look(next)
			w.aside.see("release", next.Release(background))
		}()
		time.Sleep(time.Second)
		w.look(h)
		w.see("release", h.Release(background))
		synctest.Wait()
		w.look(h)
	},
	"cancelled wait": func(w *plainWorld) {
		h := w.lock("x")
		ctx, cancel := context.WithCancelCause(background)
		go func() {
			time.Sleep(time.Second)
			cancel(errors.New("no more"))
		}()
		_, err := w.b.Lock(ctx, "x")
		w.see("cancelled", err, errors.Is(err, lockkeeper.ErrNotAcquired), errors.Is(err, context.Canceled))
		_, err = w.b.Lock(ctx, "x")
		w.see("at once", err)
		w.look(h)
		w.see("release", h.Release(background))
		_, err = w.b.TryLock(background, "x")
		w.see("next", err)
	},
	"bounded wait": func(w *plainWorld) {
		h := w.lock("x")
		ctx, cancel := context.WithTimeout(background, 2*time.Second)
		defer cancel()
		_, err := w.b.Lock(ctx, "x")
		w.see("bounded", err, errors.Is(err, lockkeeper.ErrNotAcquired))
		_, err = w.a.TryLock(background, "x")
		w.see("tried", err)
		w.look(h)
		w.see("release", h.Release(background))
		h, err = w.a.TryLock(background, "x")
		w.see("tried", err)
		w.look(h)
	},
	"deadline in line": func(w *plainWorld) {
		h := w.lock("x")
		for i := range 3 {
			ctx, cancel := context.WithTimeout(background, time.Duration(i+1)*time.Second)
			defer cancel()
			go func() {
				if i == 1 {
					time.AfterFunc(time.Second+time.Millisecond, cancel)
				}
				next, err := w.b.Lock(ctx, "x")
				w.aside.see("next", i, err)
				if err == nil {
					w.aside.look(next)
					w.aside.see("release", next.Release(background))
				}
			}()
			synctest.Wait()
		}
		time.Sleep(2 * time.Second)
		w.look(h)
		w.see("release", h.Release(background))
		synctest.Wait()
		_, err := w.a.TryLock(background, "x")
		w.see("tried", err)
	},
	"deadline of a listed wait": func(w *plainWorld) {
		h := w.lock("x")
		ctx, cancel := context.WithTimeout(background, 3*time.Second)
		defer cancel()
		go func() {
			_, err := w.b.Lock(ctx, "x")
			w.aside.see("next", err)
		}()
		time.Sleep(time.Second)
		for st, err := range w.b.List(background, lockkeeper.Query{}) {
			w.see("list", st.Ref, st.State, st.Age, st.Left, st.Position, st.Waits, err)
		}
		time.Sleep(3 * time.Second)
		w.look(h)
	},
	"deadline as it is granted": func(w *plainWorld) {
		h := w.lock("x")
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		go func() {
			_, err := w.b.Lock(ctx, "x")
			w.aside.see("next", errors.Is(err, lockkeeper.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded))
		}()
		time.Sleep(time.Second + time.Nanosecond)
		w.see("release", h.Release(background))
		synctest.Wait()
		_, err := w.a.TryLock(background, "x")
		w.see("tried", err)
	},
	"close": func(w *plainWorld) {
		h := w.lock("x")
		other := w.lock("y")
		w.context(other)
		go func() {
			_, err := w.a.Lock(background, "x")
			w.aside.see("waiting", err)
		}()
		synctest.Wait()
		w.see("close", w.a.Close())
		synctest.Wait()
		w.look(h)
		w.see("release", h.Release(background), h.Close())
		w.context(other)
		_, err := w.a.Lock(background, "z")
		w.see("later", err)
	},
	"revoked": func(w *plainWorld) {
		h := w.lock("x")
		go func() {
			_, err := w.b.Lock(background, "x")
			w.aside.see("next", err)
		}()
		synctest.Wait()
		w.see("revoke", w.b.Revoke(background, h.Ref(), false, lockkeeper.Label{As: "op", Note: "why"}))
		synctest.Wait()
		w.look(h)
		<-h.YieldAsked()
		w.see("revoke", w.b.Revoke(background, h.Ref(), true, lockkeeper.Label{As: "op"}))
		synctest.Wait()
		w.look(h)
		w.context(h)
		w.see("release", h.Release(background))
	},
	"taken over": func(w *plainWorld) {
		h := w.lock("x")
		go func() {
			_, err := w.a.Lock(background, "x")
			w.aside.see("waiting", err)
		}()
		synctest.Wait()
		other := lockkeeper.New(w.e, lockkeeper.SessionID("a"), lockkeeper.SharedEngine())
		_, err := other.Lock(background, "x")
		w.see("other", err)
		synctest.Wait()
		w.look(h)
		w.see("release", h.Release(background), other.Close())
		h, err = w.a.Lock(background, "x")
		w.see("again", err)
		w.look(h)
	},
	"inside": func(w *plainWorld) {
		h := w.lock("x")
		again, err := w.a.Lock(background, "x", lockkeeper.WithInside(h.Ref()))
		w.see("inside", err)
		if err == nil {
			w.see("release", again.Release(background))
		}
		next := w.lock("y")
		_, err = w.b.Lock(background, "x", lockkeeper.WithInside(next.Ref()), lockkeeper.WithWait(time.Second))
		w.see("inside another's", err)
		w.look(next)
	},
	"changed": func(w *plainWorld) {
		h := w.lock("x")
		w.see("amend", h.Amend(background, lockkeeper.WithPriority(2)))
		w.see("downgrade", h.Downgrade(background))
		w.look(h)
		w.see("upgrade", h.Upgrade(background))
		w.look(h)
		w.see("release", h.Release(background))
	},
	"list": func(w *plainWorld) {
		w.lock("x/y")
		w.lock("z")
		go w.b.Lock(background, "x/y")
		synctest.Wait()
		time.Sleep(time.Second)
		for st, err := range w.b.List(background, lockkeeper.Query{}) {
			w.see("list", st.Ref, st.State, st.Grants, st.Fence, st.Label, st.Age, st.Left, st.Position, st.Waits, err)
		}
	},
	"freeze": func(w *plainWorld) {
		w.look(w.lock("x"))
		w.see("freeze", w.b.Freeze(background, "x", time.Minute, lockkeeper.Label{}))
		_, err := w.a.TryLock(background, "x/y")
		w.see("frozen", err)
	},
	"engine closed": func(w *plainWorld) {
		h := w.lock("x")
		w.see("close", w.e.Close())
		w.look(h)
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		w.see("release", h.Release(ctx))
		_, err := w.a.TryLock(ctx, "y")
		w.see("later", err)
	},
}
