package page_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A chromium is one tab of a headless browser. It speaks Chromium's DevTools protocol over a pair of
// pipes: messages in JSON, each with a zero byte at its end.
type chromium struct {
	testing.TB
	to      io.Writer
	session string // of the tab

	mu      sync.Mutex
	next    int
	answers map[int]chan reply
	wrong   []string                         // exceptions, refusals of the policy and other errors that the page logged
	on      map[string]func(json.RawMessage) // called with the parameters of events
}

type reply struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct{ Message string }
}

// patience bounds every wait for the browser, which may share its cores with others.
const patience = time.Minute

// startChromium starts the browser of the machine, or skips the test if there is none.
func startChromium(t testing.TB) *chromium {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium: tools/install chromium installs it")
	}
	theirIn, in, err1 := os.Pipe()
	out, theirOut, err2 := os.Pipe()
	profile, err3 := os.MkdirTemp("", "chromium")
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
		"--no-first-run", "--disable-extensions", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--user-data-dir="+profile)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	cmd.Env = append(os.Environ(), "TZ=UTC", "LANG=en_GB.UTF-8")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	c := &chromium{TB: t, to: in, answers: make(map[int]chan reply)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.receive(out)
	}()
	t.Cleanup(func() {
		_, _ = in.Write([]byte(`{"id":1000000,"method":"Browser.close"}` + "\x00"))
		kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Wait()
		in.Close()
		<-ended
		if err := os.RemoveAll(profile); err != nil { // a part of the browser may outlive it for a moment
			t.Log(err)
		}
	})
	var target struct {
		ID string `json:"targetId"`
	}
	c.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		ID string `json:"sessionId"`
	}
	c.call("Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &attached)
	c.session = attached.ID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		c.call(domain+".enable", nil, nil)
	}
	return c
}

// receive passes answers on, and collects errors, until the browser ends.
func (c *chromium) receive(out io.Reader) {
	var rest []byte
	part := make([]byte, 64<<10)
	for {
		n, err := out.Read(part)
		rest = append(rest, part[:n]...)
		for {
			text, more, ok := bytes.Cut(rest, []byte{0})
			if !ok {
				break
			}
			rest = more
			var r reply
			if json.Unmarshal(text, &r) != nil {
				continue
			}
			c.mu.Lock()
			if to := c.answers[r.ID]; to != nil {
				to <- r
				delete(c.answers, r.ID)
			}
			if r.Method == "Runtime.exceptionThrown" || r.Method == "Log.entryAdded" {
				c.wrong = append(c.wrong, string(r.Params))
			}
			if on := c.on[r.Method]; on != nil {
				on(r.Params)
			}
			c.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// call calls a method of the protocol, and decodes its result.
func (c *chromium) call(method string, params map[string]any, result any) {
	c.Helper()
	to := make(chan reply, 1)
	c.mu.Lock()
	c.next++
	id := c.next
	c.answers[id] = to
	c.mu.Unlock()
	message := map[string]any{"id": id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if c.session != "" {
		message["sessionId"] = c.session
	}
	text, err := json.Marshal(message)
	if err == nil {
		_, err = c.to.Write(append(text, 0))
	}
	if err != nil {
		c.Fatalf("%s: %v", method, err)
	}
	select {
	case r := <-to:
		if r.Error != nil {
			c.Fatalf("%s: %s", method, r.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(r.Result, result); err != nil {
				c.Fatalf("%s: %v", method, err)
			}
		}
	case <-time.After(patience):
		c.Fatalf("%s: the browser did not answer", method)
	}
}

// eval returns the value of an expression or of its promise.
func (c *chromium) eval(expression string) any {
	c.Helper()
	var got struct {
		Result    struct{ Value any }
		Exception *struct {
			Text      string
			Exception struct{ Description string }
		} `json:"exceptionDetails"`
	}
	c.call("Runtime.evaluate", map[string]any{
		"expression": expression, "awaitPromise": true, "returnByValue": true, "allowUnsafeEvalBlockedByCSP": true,
	}, &got)
	if got.Exception != nil {
		c.Fatalf("%s: %s %s", expression, got.Exception.Text, got.Exception.Exception.Description)
	}
	return got.Result.Value
}

// awaits waits until an expression is true in the page.
func (c *chromium) awaits(expression string) {
	c.Helper()
	until := fmt.Sprintf(`new Promise((resolve) => {
		const end = Date.now() + %d;
		const is = () => { try { return %s; } catch { return false; } };
		const look = () => is() ? resolve(true) : Date.now() > end ? resolve(false) : setTimeout(look, 20);
		look();
	})`, (patience / 2).Milliseconds(), expression)
	if c.eval(until) != true {
		c.Fatalf("never: %s\nthe page has: %v\n%s", expression, c.eval("document.body.innerText"), c.errors())
	}
}

// shows waits until the page shows a text.
func (c *chromium) shows(text string) {
	c.Helper()
	c.awaits("document.body.innerText.includes(" + quote(text) + ")")
}

func quote(text string) string {
	quoted, _ := json.Marshal(text) // of a string it cannot fail
	return string(quoted)
}

// opens loads an address.
func (c *chromium) opens(url string) {
	c.Helper()
	c.call("Page.navigate", map[string]any{"url": url}, nil)
	c.awaits("location.href.startsWith(" + quote(url) + `) && document.querySelector("#app")?.childElementCount > 0`)
}

// types enters text where the focus is.
func (c *chromium) types(text string) {
	c.Helper()
	c.call("Input.insertText", map[string]any{"text": text}, nil)
}

// presses presses keys, one after the other.
func (c *chromium) presses(keys ...string) {
	c.Helper()
	codes := map[string]int{"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39,
		"Home": 36, "End": 35, "Tab": 9}
	for _, key := range keys {
		event := map[string]any{"type": "keyDown", "key": key, "windowsVirtualKeyCode": codes[key]}
		if len(key) == 1 {
			event["text"] = key
		} else if key == "Enter" {
			event["text"] = "\r"
		}
		c.call("Input.dispatchKeyEvent", event, nil)
		up := map[string]any{"type": "keyUp", "key": key, "windowsVirtualKeyCode": codes[key]}
		c.call("Input.dispatchKeyEvent", up, nil)
	}
}

// resizes makes the window so large, in a colour scheme.
func (c *chromium) resizes(width, height int, scheme string) {
	c.Helper()
	c.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
	}, nil)
	c.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
}

// photographs writes a picture of the page to the folder that LOCKKEEPER_SCREENSHOTS names, if any.
func (c *chromium) photographs(name string) {
	c.Helper()
	folder := os.Getenv("LOCKKEEPER_SCREENSHOTS")
	var taken struct{ Data string }
	c.call("Page.captureScreenshot", map[string]any{"format": "png"}, &taken)
	picture, err := base64.StdEncoding.DecodeString(taken.Data)
	if err == nil && folder != "" {
		err = os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644)
	}
	if err != nil || len(picture) < 1000 {
		c.Errorf("the picture %s: %d bytes, %v", name, len(picture), err)
	}
}

// errors returns what the page did wrong, without what the network did and what the browser only remarks.
func (c *chromium) errors() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var texts []string
	for _, text := range c.wrong {
		remark := strings.Contains(text, `"level":"info"`) || strings.Contains(text, `"level":"verbose"`)
		if !remark && !strings.Contains(text, `"source":"network"`) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n")
}
