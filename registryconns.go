package tonbo

import "container/list"

// idleConns bounds the SQLite connections that the idle databases of a registry keep open. Guarded by the registry's mu.
type idleConns struct {
	max   int
	total int       // of those in used, when they became idle: their pools may have closed some since, and then of those first that are the first here
	used  list.List // of *member that are idle and had connections; the least recently used first
}

// add counts the connections of m, which has become idle.
func (c *idleConns) add(m *member) {
	if m.conns = m.db.Stats().OpenConnections; m.conns > 0 {
		c.total += m.conns
		m.pooled = c.used.PushBack(m)
	}
}

func (c *idleConns) remove(m *member) {
	if m.pooled != nil {
		c.used.Remove(m.pooled)
		c.total -= m.conns
		m.pooled, m.conns = nil, 0
	}
}

// surplus takes out what has to close its connections.
func (c *idleConns) surplus() (dbs []*DB) {
	for c.total > c.max {
		m := c.used.Front().Value.(*member)
		c.remove(m)
		dbs = append(dbs, m.db)
	}
	return dbs
}

// drain closes the connections that are idle. Who has begun to use the database meanwhile opens new ones.
func drain(db *DB) {
	db.SetMaxIdleConns(-1)
	db.SetMaxIdleConns(maxIdleConns)
}

// trim closes what idle databases have too many of.
func (r *Registry) trim() {
	r.mu.Lock()
	surplus := r.conns.surplus()
	r.mu.Unlock()
	for _, db := range surplus {
		drain(db)
	}
}
