package blockcache

// Evict makes the cache fit its bound now.
func (c *Cache) Evict() error { return c.evict() }
