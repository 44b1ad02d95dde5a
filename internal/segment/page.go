package segment

import "github.com/cespare/xxhash/v2"

// Page sizes, in bytes: powers of two in this range (https://sqlite.org/fileformat2.html#page_size).
const (
	MinPageSize = 512
	MaxPageSize = 65536
)

// MaxPage is the highest page number that SQLite can have (https://sqlite.org/limits.html).
const MaxPage = 1<<32 - 2

// lockByte is where SQLite locks the file; the page that holds it has no content (https://sqlite.org/fileformat2.html#the_lock_byte_page).
const lockByte = 0x40000000

// ValidPageSize tells whether SQLite can have pages of n bytes.
func ValidPageSize(n int) bool {
	return n >= MinPageSize && n <= MaxPageSize && n&(n-1) == 0
}

// LockPage returns the number of the page that holds byte 0x40000000. It is never stored and counts in no checksum.
// pageSize must be valid.
func LockPage(pageSize int) uint32 {
	return uint32(lockByte/pageSize) + 1
}

// PageSum is the xxhash64 of a page's content, seeded with its number. The XOR of it over all pages of a database
// but the lock page is the database checksum, which a writer can therefore keep page by page. It allocates nothing.
func PageSum(pgno uint32, page []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(uint64(pgno))
	d.Write(page)
	return d.Sum64()
}
