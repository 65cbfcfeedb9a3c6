-- Extends leases, each as record::renew does. Fenced within the script, so no takeover lies between the look and the
-- write; repeated it extends again.
--
-- ARGV of each: id, fence, attempt, lease_for
local now = clock()
return each(4, function(place, from)
    local record = taken(KEYS[place])
    if not record or record[STATE] ~= RUNNING or text(record[FENCE]) ~= ARGV[from + 2]
        or record[ATTEMPT] ~= ARGV[from + 3] then
        return 'lost'
    end
    record[AT] = after(now, tonumber(ARGV[from + 4]))
    save(place, ARGV[from + 1], record)
    return 'done'
end)
