package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/server"
)

func itoa(n int) string { return strconv.Itoa(n) }

// childEnv makes the test binary a server of that URL.
const childEnv = "TONBO_TEST_SERVER_URL"

// child serves until it is killed.
func child(url string) error {
	dir, err := os.MkdirTemp("", "tonbo-server-*")
	if err != nil {
		return err
	}
	s, err := server.New(server.Options{Options: tonbo.Options{URL: url, Dir: dir}})
	if err != nil {
		return err
	}
	l, err := server.Listen("127.0.0.1:0", 0)
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	go func() { // the parent has gone
		io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	return http.Serve(l, s)
}

// process is a server in a process of its own.
type process struct {
	cmd *exec.Cmd
	url string
}

func startServer(t *testing.T, url string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+url, "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd}
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	p.url = strings.TrimSpace(line)
	return p
}

// kill is kill -9.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// Servers that share a directory are killed at any moment while clients create, change and delete databases and make keys through them. What was answered holds, and what was not, sent again, is done once.
func TestKilledServersLoseNothingThatWasAnswered(t *testing.T) {
	rounds := 3
	if os.Getenv("TONBO_TEST_LARGE") != "" {
		rounds = 40
	}
	url := "file://" + filepath.ToSlash(t.TempDir())
	first, err := server.New(server.Options{Options: tonbo.Options{URL: url, Dir: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	owner, err := first.MakeOwner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	servers := []*process{startServer(t, url), startServer(t, url)}
	pick := func() string {
		mu.Lock()
		defer mu.Unlock()
		return servers[rand.IntN(len(servers))].url
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	// send tries until a server answers.
	send := func(method, path, body, once string) (int, answer) {
		for {
			r, err := http.NewRequestWithContext(t.Context(), method, pick()+path, strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return 0, answer{}
			}
			r.Header.Set("Authorization", "Bearer "+owner)
			if once != "" {
				r.Header.Set("Idempotency-Key", once)
			}
			resp, err := client.Do(r)
			if err == nil {
				var b []byte
				b, err = io.ReadAll(resp.Body)
				resp.Body.Close()
				if err == nil && resp.StatusCode != http.StatusServiceUnavailable {
					return resp.StatusCode, answer{Status: resp.StatusCode, Body: b}
				}
			}
			if t.Context().Err() != nil {
				return 0, answer{}
			}
		}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	type result struct {
		ids     map[string]string // of databases that live
		deleted []string
		secrets map[string]bool // of keys, and whether they are in force
	}
	results := make([]result, 3)
	for n := range results {
		r := &results[n]
		r.ids, r.secrets = map[string]string{}, map[string]bool{}
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("run-%d-%d", n, i)
				status, a := send("POST", "/v1/databases", `{"name":"`+name+`"}`, name)
				if status != 201 {
					t.Errorf("create %s: %d %s", name, status, a.Body)
					return
				}
				r.ids[name] = a.text("id")
				if status, a := send("PATCH", "/v1/databases/"+name, `{"metadata":{"n":"`+itoa(i)+`"}}`, ""); status != 200 {
					t.Errorf("update %s: %d %s", name, status, a.Body)
				}
				status, a = send("POST", "/v1/api-keys", `{"name":"k","databases":["`+name+`"]}`, "")
				if status != 201 {
					t.Errorf("make a key: %d %s", status, a.Body)
					return
				}
				secret := a.text("secret")
				r.secrets[secret] = true
				if i%2 == 0 {
					if status, a := send("DELETE", "/v1/databases/"+name, "", ""); status != 204 && status != 404 { // 404: the try that was cut had done it
						t.Errorf("delete %s: %d %s", name, status, a.Body)
					}
					delete(r.ids, name)
					r.deleted = append(r.deleted, name)
					r.secrets[secret] = false
				}
			}
		})
	}
	for range rounds {
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond) // any moment is one
		mu.Lock()
		i := rand.IntN(2)
		old := servers[i]
		mu.Unlock()
		old.kill()
		next := startServer(t, url)
		mu.Lock()
		servers[i] = next
		mu.Unlock()
	}
	close(stop)
	wg.Wait()
	w := &front{t: t, url: servers[0].url}
	made := 0
	for _, r := range results {
		for name, id := range r.ids {
			a := w.want(200, "GET", "/v1/databases/"+name, owner, "")
			if a.text("id") != id || a.text("metadata", "n") == "" {
				t.Errorf("%s is not what was answered: %s", name, a.Body)
			}
			made++
		}
		for _, name := range r.deleted {
			w.want(404, "GET", "/v1/databases/"+name, owner, "")
		}
		for secret, good := range r.secrets {
			status := 401
			if good {
				status = 200
			}
			w.want(status, "GET", "/v1/databases", secret, "")
		}
	}
	a := w.want(200, "GET", "/v1/databases?limit=1000", owner, "")
	var all struct{ Data []json.RawMessage }
	if err := json.Unmarshal(a.Body, &all); err != nil || made < 1000 && len(all.Data) != made {
		t.Errorf("%d databases, %d were made and not deleted", len(all.Data), made)
	}
	if made == 0 {
		t.Error("nothing was made: the test does not test")
	}
}
