package fence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
)

// HeaderName is the header of a request in which the holder of a lock sends the fence of its grant, a
// decimal number. There is no standard for it.
const HeaderName = "Lock-Fence"

// SetHeader puts the fence of a hold into the header of a request.
func SetHeader(h http.Header, fence uint64) { h.Set(HeaderName, strconv.FormatUint(fence, 10)) }

// Handler passes a request to next if its fence is not stale. resource returns the name of what a
// request is about, such as the path of the lock that guards it. Requests that are refused:
//
//	400  the header is no number from 1 to 2^63-1, is there twice, or resource returned a name that can't be kept
//	412  the fence is stale: the client has lost its lock. The header says which fence is the highest
//	428  there is no fence, and the method is not GET, HEAD or OPTIONS
//	503  the store did not answer, is full, or a request under an earlier fence has not ended: try again
//
// A GET, HEAD or OPTIONS without a fence passes: reading needs no lock. With a fence it is checked as
// any other request, so a holder can learn that it is late before it reads.
//
// next should stop when the context of its request ends; the cause is ErrStale if a later holder has
// come (with [Memory]). A body that arrives slowly keeps a request in progress: bound it by the
// server's ReadTimeout. A panic of next ends the work, too.
func Handler(store Store, resource func(*http.Request) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		number, given, err := fromHeader(r.Header)
		if err == nil && !given {
			switch r.Method {
			case http.MethodGet, http.MethodHead, http.MethodOptions:
				next.ServeHTTP(w, r)
			default:
				refuse(w, http.StatusPreconditionRequired, 0, "this request needs the fence of a lock in the header "+HeaderName)
			}
			return
		}
		var leave func()
		work, name := r.Context(), ""
		if err == nil {
			name = resource(r)
			work, leave, err = store.Enter(r.Context(), name, number)
		}
		if err != nil {
			refuseFor(r.Context(), w, err)
			return
		}
		defer leave()
		admitted := admission{resource: name, fence: number}
		next.ServeHTTP(w, r.WithContext(context.WithValue(work, admissionKey{}, admitted)))
	})
}

type (
	admission struct {
		resource string
		fence    uint64
	}
	admissionKey struct{}
)

// FromContext returns the resource and the fence under which [Handler] admitted a request; ok is false
// if the request came without a fence.
func FromContext(ctx context.Context) (resource string, fence uint64, ok bool) {
	a, ok := ctx.Value(admissionKey{}).(admission)
	return a.resource, a.fence, ok
}

func fromHeader(h http.Header) (fence uint64, given bool, err error) {
	values := h.Values(HeaderName)
	switch len(values) {
	case 0:
		return 0, false, nil
	case 1:
	default:
		return 0, true, fmt.Errorf("%w: the header %s is there %d times", ErrInvalid, HeaderName, len(values))
	}
	fence, err = strconv.ParseUint(values[0], 10, 63)
	if err != nil || fence == 0 {
		return 0, true, fmt.Errorf("%w: the header %s must be a number from 1 to 2^63-1", ErrInvalid, HeaderName)
	}
	return fence, true, nil
}

// refuseFor answers a request that was not admitted. What a database says is for the log alone.
func refuseFor(ctx context.Context, w http.ResponseWriter, err error) {
	var stale *StaleError
	switch {
	case errors.As(err, &stale):
		SetHeader(w.Header(), stale.Highest)
		refuse(w, http.StatusPreconditionFailed, stale.Highest, stale.Error())
	case errors.Is(err, ErrInvalid):
		refuse(w, http.StatusBadRequest, 0, err.Error())
	case errors.Is(err, ErrBusy), errors.Is(err, ErrFull):
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, 0, err.Error())
	default:
		if ctx.Err() == nil { // otherwise the client has left
			slog.ErrorContext(ctx, "a fence could not be checked", "error", err)
		}
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, 0, "the fence could not be checked")
	}
}

// refuse writes a problem (RFC 9457).
func refuse(w http.ResponseWriter, status int, highest uint64, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct {
		Title   string `json:"title"`
		Status  int    `json:"status"`
		Detail  string `json:"detail"`
		Highest uint64 `json:"highest_fence,omitempty"`
	}{http.StatusText(status), status, detail, highest}) // the client has left
}
