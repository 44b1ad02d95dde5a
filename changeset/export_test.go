package changeset

// Break leaves out one of the rules by which rows are compared.
func (o *Options) Break(rule string) { o.broken = rule }

// Told calls f with what came of Pages: "used", or why it was not.
func (o *Options) Told(f func(string)) { o.used = f }
