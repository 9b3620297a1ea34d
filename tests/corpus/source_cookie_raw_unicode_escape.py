# coding: raw_unicode_escape
print('\u00fc', len('\u00fc'))
